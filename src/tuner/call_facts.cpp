#include "tuner/call_facts.hpp"

#include <algorithm>

#include "schedule/host/limits.hpp"
#include "topology/topology.hpp"
#include "tuner/built_in.hpp"
#include "tutti/shape.hpp"

namespace tutti::tuner {

schedule::Request request_of(const CallFacts& facts, int rank, int shots) {
  schedule::Request request;
  request.collective = facts.collective;
  request.size = facts.ranks;
  request.rank = rank;
  request.shots = shots;
  request.host_of = facts.host_of;
  request.order = facts.order;
  request.walk = facts.walk;
  return request;
}

double total_bytes(const CallFacts& facts) {
  return static_cast<double>(facts.uneven && facts.bytes == 0 ? kUnknownBytes : facts.bytes);
}

int company_of(const CallFacts& facts, int rank) {
  const auto& where = facts.machine_of.empty() ? facts.host_of : facts.machine_of;
  if (where.empty()) return facts.ranks;
  return static_cast<int>(
      std::count(where.begin(), where.end(), where[static_cast<std::size_t>(rank)]));
}

bool can_meet(const CallFacts& facts) {
  // Parts that only two ranks know go by messages.
  if (facts.uneven && !shape_of(facts.collective).all_see_parts()) return false;
  return topology::host_count(facts.host_of) <= 1 && facts.ranks <= schedule::kMostHostRanks;
}

}  // namespace tutti::tuner
