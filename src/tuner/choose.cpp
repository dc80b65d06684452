#include "tuner/choose.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.hpp"
#include "schedule/catalog.hpp"
#include "topology/topology.hpp"
#include "tuner/cost.hpp"
#include "tuner/estimate.hpp"

namespace tutti::tuner {
namespace {

using schedule::Entry;

bool one_host(const Situation& situation) { return topology::host_count(situation.host_of) == 1; }

// Only where there is an inside and an outside to tell apart.
bool worth_a_hierarchy(const Situation& situation) {
  const int hosts = topology::host_count(situation.host_of);
  return hosts > 1 && hosts < situation.ranks;
}

int shots_for(const Situation& situation) {
  const std::size_t limit = one_host(situation) ? kOneShotBytesMemory : kOneShotBytesTcp;
  return situation.bytes <= limit ? 1 : 2;
}

// Why an entry cannot serve, as the end of a sentence; empty when it can.
std::string objection(const Entry& entry, const Situation& situation) {
  if (entry.applies && !entry.applies(request_of(situation, 0, shots_for(situation))))
    return fmt::format("does not exist for these {} ranks", situation.ranks);
  if (situation.order == ReductionOrder::rank && has_reduction(situation.collective) &&
      !entry.rank_ordered)
    return "does not fold in rank order, which this call asks for";
  if (situation.uneven && !entry.uneven)
    return "cannot do parts of different size, or one buffer per rank";
  return {};
}

Choice weigh(const Entry& entry, const Situation& situation) {
  const int shots = shots_for(situation);
  return {entry.algorithm, shots, estimate(entry, situation, shots)};
}

std::string names_of_able(const Situation& situation) {
  std::string names;
  for (const Entry& entry : schedule::catalog()) {
    if (entry.collective != situation.collective || !objection(entry, situation).empty()) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(entry.algorithm));
  }
  return names;
}

}  // namespace

std::vector<Choice> candidates(const Situation& situation) {
  std::vector<Choice> choices;
  for (const Entry& entry : schedule::catalog()) {
    if (entry.collective != situation.collective || !objection(entry, situation).empty()) continue;
    if (entry.algorithm == Algorithm::hierarchical && !worth_a_hierarchy(situation)) continue;
    choices.push_back(weigh(entry, situation));
  }
  // Equal costs keep the catalog's order, so that every rank has the same first row.
  std::stable_sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    return a.predicted < b.predicted;
  });
  // Direct serves every collective in every situation that a group can be in.
  TUTTI_CHECK(!choices.empty());
  return choices;
}

Choice choose(const Situation& situation) { return candidates(situation).front(); }

Result<Choice> choose_forced(const Situation& situation, Algorithm algorithm) {
  if (algorithm == Algorithm::automatic) return choose(situation);
  const Entry* entry = schedule::find(situation.collective, algorithm);
  const std::string reason =
      entry == nullptr ? "does not exist" : objection(*entry, situation);
  if (reason.empty()) return weigh(*entry, situation);
  return Status(Code::invalid_argument,
                fmt::format("{} by {} {}; these can serve: {}", to_string(situation.collective),
                            to_string(algorithm), reason, names_of_able(situation)));
}

}  // namespace tutti::tuner
