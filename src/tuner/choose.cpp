#include "tuner/choose.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/check.hpp"
#include "schedule/catalog.hpp"
#include "topology/topology.hpp"
#include "tuner/cost.hpp"
#include "tuner/estimate.hpp"
#include "tuner/stage.hpp"

namespace tutti::tuner {
namespace {

using schedule::Entry;

// Only where there is an inside and an outside to tell apart.
bool worth_a_hierarchy(const Situation& situation) {
  const int hosts = topology::host_count(situation.host_of);
  return hosts > 1 && hosts < situation.ranks;
}

// Why an entry cannot serve, as the end of a sentence; empty when it can.
std::string objection(const Entry& entry, const Situation& situation) {
  if (entry.applies && !entry.applies(request_of(situation, 0, 2)))
    return fmt::format("does not exist for these {} ranks", situation.ranks);
  if (situation.order == ReductionOrder::rank && has_reduction(situation.collective) &&
      !entry.rank_ordered)
    return "does not fold in rank order, which this call asks for";
  if (situation.uneven && !entry.uneven)
    return "cannot do parts of different size, or one buffer per rank";
  return {};
}

Choice weigh(const Entry& entry, const Situation& situation, int shots, const Machine& machine) {
  const Estimate cost = estimate(entry, situation, shots, machine);
  return {entry.algorithm, shots, cost.time, cost.segment_bytes, cost.streams};
}

// Direct all_reduce has two forms: everybody folds everything, or owners fold slices.
Choice weigh(const Entry& entry, const Situation& situation, const Machine& machine) {
  const Choice two = weigh(entry, situation, 2, machine);
  if (entry.algorithm != Algorithm::direct || entry.collective != Collective::all_reduce)
    return two;
  const Choice one = weigh(entry, situation, 1, machine);
  // Nearly equal: the form that moves less is kinder to whatever runs beside it.
  return static_cast<double>(one.predicted.count()) <=
                 kWorthOneShot * static_cast<double>(two.predicted.count())
             ? one
             : two;
}

// On one host direct runs where the ranks meet, and everything else by messages. Those were slower
// in every cell that was measured (docs/performance.md), and a table that was measured on a busy
// machine may not know it.
bool by_message(const Choice& choice, const Situation& situation) {
  return topology::host_count(situation.host_of) == 1 && situation.ranks <= kMostStagedRanks &&
         choice.algorithm != Algorithm::direct;
}

// What candidates are compared by. On one host that is plain and symmetric memory alike: which of
// them a call has is known to each rank for itself only, and the choice must be everybody's.
double weight(const Choice& choice, const Situation& situation, const Machine& machine) {
  const auto plain = static_cast<double>(choice.predicted.count());
  if (situation.symmetric || topology::host_count(situation.host_of) != 1) return plain;
  const Entry* entry = situation.catalog->find(situation.collective, choice.algorithm);
  Situation shared = situation;
  shared.symmetric = true;
  // Where all can reach all buffers, direct folds by slices whatever was chosen.
  const auto reached = weigh(*entry, shared, 2, machine).predicted;
  return std::sqrt(plain * static_cast<double>(std::min(reached, choice.predicted).count()));
}

std::string names_of_able(const Situation& situation) {
  std::string names;
  for (const Entry& entry : situation.catalog->entries()) {
    if (entry.collective != situation.collective || !objection(entry, situation).empty()) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(entry.algorithm));
  }
  return names;
}

}  // namespace

std::vector<Choice> candidates(const Situation& situation, const Machine& machine) {
  std::vector<Choice> choices;
  std::vector<std::tuple<bool, double, std::size_t>> weighed;
  for (const Entry& entry : situation.catalog->entries()) {
    if (entry.collective != situation.collective || !objection(entry, situation).empty()) continue;
    if (entry.algorithm == Algorithm::hierarchical && !worth_a_hierarchy(situation)) continue;
    choices.push_back(weigh(entry, situation, machine));
    weighed.emplace_back(by_message(choices.back(), situation),
                         weight(choices.back(), situation, machine), choices.size() - 1);
  }
  // Direct serves every collective in every situation that a group can be in.
  TUTTI_CHECK(!choices.empty());
  // Equal costs keep the catalog's order, so that every rank has the same first row.
  std::sort(weighed.begin(), weighed.end());
  std::vector<Choice> sorted;
  for (const auto& each : weighed) sorted.push_back(choices[std::get<2>(each)]);
  return sorted;
}

Choice choose(const Situation& situation, const Machine& machine) {
  return candidates(situation, machine).front();
}

Result<Choice> choose_forced(const Situation& situation, Algorithm algorithm,
                             const Machine& machine) {
  if (algorithm == Algorithm::automatic) return choose(situation, machine);
  const Entry* entry = situation.catalog->find(situation.collective, algorithm);
  const std::string reason = entry == nullptr ? "does not exist" : objection(*entry, situation);
  if (reason.empty()) return weigh(*entry, situation, machine);
  return Status(Code::invalid_argument,
                fmt::format("{} by {} {}; these can serve: {}", to_string(situation.collective),
                            to_string(algorithm), reason, names_of_able(situation)));
}

std::string describe(const Situation& situation, std::span<const Choice> choices) {
  std::string text =
      fmt::format("{}, {} bytes, {} ranks on {} host{}{}{}{}", to_string(situation.collective),
                  situation.bytes, situation.ranks, topology::host_count(situation.host_of),
                  topology::host_count(situation.host_of) == 1 ? "" : "s",
                  situation.symmetric ? ", symmetric memory" : "",
                  situation.order == ReductionOrder::rank ? ", in rank order" : "",
                  situation.uneven ? ", uneven" : "");
  for (const Choice& choice : choices) {
    const bool has_shots =
        choice.algorithm == Algorithm::direct && situation.collective == Collective::all_reduce;
    text += fmt::format("\n  {} {:<20}{:<9} {:>12.2f} us", &choice == &choices[0] ? '*' : ' ',
                        to_string(choice.algorithm),
                        !has_shots          ? ""
                        : choice.shots == 1 ? "1 shot"
                                            : "2 shots",
                        static_cast<double>(choice.predicted.count()) * 1e-3);
    if (choice.segment_bytes != 0) text += fmt::format("  segments of {}", choice.segment_bytes);
    if (choice.streams != 0) text += fmt::format("  {} streams", choice.streams);
  }
  return text;
}

}  // namespace tutti::tuner
