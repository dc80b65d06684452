#include "tuner/choose.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/check.hpp"
#include "schedule/catalog.hpp"
#include "topology/topology.hpp"
#include "tuner/built_in.hpp"
#include "tuner/estimate.hpp"

namespace tutti::tuner {
namespace {

using schedule::Entry;

// Only where there is an inside and an outside to tell apart.
bool worth_a_hierarchy(const CallFacts& facts) {
  const int hosts = topology::host_count(facts.host_of);
  return hosts > 1 && hosts < facts.ranks;
}

// Why an entry cannot serve, as the end of a sentence; empty when it can.
std::string objection(const Entry& entry, const CallFacts& facts) {
  if (entry.by_switch && !facts.has_switch)
    return "needs a switch that folds, which this group does not reach (tutti switch)";
  if (entry.applies && !entry.applies(request_of(facts, 0, 2)))
    return fmt::format("does not exist for these {} ranks", facts.ranks);
  if (!entry.keeps_order(request_of(facts, 0, 2)))
    return fmt::format("does not fold in {} order, which this call asks for",
                       to_string(facts.order));
  if (facts.whole_folds && has_reduction(facts.collective) && entry.folds != schedule::kOrdered)
    return "hands on partial folds, which this call cannot round";
  if (facts.uneven && !entry.uneven)
    return "cannot do parts of different size, or one buffer per rank";
  return {};
}

Choice weigh(const Entry& entry, const CallFacts& facts, int shots, const Machine& machine) {
  return {entry.algorithm, shots, estimate(entry, facts, shots, machine)};
}

// Direct all_reduce has two forms: everybody folds everything, or owners fold slices.
Choice weigh(const Entry& entry, const CallFacts& facts, const Machine& machine) {
  const Choice two = weigh(entry, facts, 2, machine);
  if (entry.algorithm != Algorithm::direct || entry.collective != Collective::all_reduce)
    return two;
  const Choice one = weigh(entry, facts, 1, machine);
  // Nearly equal: the form that moves less is kinder to whatever runs beside it.
  return static_cast<double>(one.predicted.count()) <=
                 kWorthOneShot * static_cast<double>(two.predicted.count())
             ? one
             : two;
}

std::string names_of_able(const CallFacts& facts) {
  std::string names;
  for (const Entry& entry : facts.catalog->entries()) {
    if (entry.collective != facts.collective || !objection(entry, facts).empty()) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(entry.algorithm));
  }
  return names;
}

}  // namespace

std::vector<Choice> candidates(const CallFacts& facts, const Machine& machine) {
  std::vector<Choice> choices;
  std::vector<std::tuple<bool, Nanoseconds, std::size_t>> weighed;
  for (const Entry& entry : facts.catalog->entries()) {
    if (entry.collective != facts.collective || !objection(entry, facts).empty()) continue;
    if (entry.algorithm == Algorithm::hierarchical && !worth_a_hierarchy(facts)) continue;
    if (entry.by_switch && facts.switch_cost == nullptr) continue;
    choices.push_back(weigh(entry, facts, machine));
    const bool comes_later = can_meet(facts) && entry.algorithm != Algorithm::direct;
    weighed.emplace_back(comes_later, choices.back().predicted, choices.size() - 1);
  }
  // Direct serves every collective in every group.
  TUTTI_CHECK(!choices.empty());
  // On one host direct runs where the ranks meet, and the others by messages, or they are the same
  // thing by another name. Messages were slower in every cell that was measured (docs/performance.md),
  // and a table that was measured on a busy machine may not know it. Equal costs keep the catalog's
  // order, so that every rank has the same first row.
  std::sort(weighed.begin(), weighed.end());
  std::vector<Choice> sorted;
  for (const auto& each : weighed) sorted.push_back(choices[std::get<2>(each)]);
  return sorted;
}

Choice choose(const CallFacts& facts, const Machine& machine) {
  // The others would come behind it, whatever they cost.
  if (can_meet(facts))
    return weigh(*facts.catalog->find(facts.collective, Algorithm::direct), facts, machine);
  return candidates(facts, machine).front();
}

Result<Choice> choose_forced(const CallFacts& facts, Algorithm algorithm, const Machine& machine) {
  if (algorithm == Algorithm::automatic) return choose(facts, machine);
  const Entry* entry = facts.catalog->find(facts.collective, algorithm);
  const std::string reason = entry == nullptr ? "does not exist" : objection(*entry, facts);
  if (reason.empty()) return weigh(*entry, facts, machine);
  return Status(Code::invalid_argument,
                fmt::format("{} by {} {}; these can serve: {}", to_string(facts.collective),
                            to_string(algorithm), reason, names_of_able(facts)));
}

std::string describe(const CallFacts& facts, std::span<const Choice> choices) {
  std::string text = fmt::format(
      "{}, {} bytes, {} ranks on {} host{}{}{}{}{}", to_string(facts.collective), facts.bytes,
      facts.ranks, topology::host_count(facts.host_of),
      topology::host_count(facts.host_of) == 1 ? "" : "s",
      facts.symmetric ? ", symmetric memory" : "",
      facts.order == ReductionOrder::any ? ""
                                         : fmt::format(", in {} order", to_string(facts.order)),
      facts.whole_folds ? ", whole folds" : "", facts.uneven ? ", uneven" : "");
  for (const Choice& choice : choices) {
    const bool has_shots =
        choice.algorithm == Algorithm::direct && facts.collective == Collective::all_reduce;
    text += fmt::format("\n  {} {:<20}{:<9} {:>15}", &choice == &choices[0] ? '*' : ' ',
                        to_string(choice.algorithm),
                        !has_shots          ? ""
                        : choice.shots == 1 ? "1 shot"
                                            : "2 shots",
                        choice.predicted == kUnknownTime
                            ? "not estimated"
                            : fmt::format("{:.2f} us", in_seconds(choice.predicted) * 1e6));
  }
  return text;
}

}  // namespace tutti::tuner
