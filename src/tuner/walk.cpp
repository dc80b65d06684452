#include "tuner/walk.hpp"

#include <algorithm>
#include <numeric>

#include "topology/topology.hpp"
#include "tuner/built_in.hpp"

namespace tutti::tuner {
namespace {

std::vector<std::vector<int>> hosts_in(const CallFacts& facts) {
  if (!facts.host_of.empty()) return topology::ranks_by_host(facts.host_of);
  std::vector<int> all(static_cast<std::size_t>(facts.ranks));
  std::iota(all.begin(), all.end(), 0);
  return {all};
}

std::vector<Walked> everyone(const std::vector<int>& ranks) {
  std::vector<Walked> walked;
  for (const int rank : ranks) walked.push_back({rank, 1});
  return walked;
}

// The ranks of one host that stand for all of them: a leader has work of its own in some schedules.
std::vector<Walked> stand_ins(const std::vector<int>& ranks) {
  if (ranks.size() <= 4) return everyone(ranks);
  const double share = (static_cast<double>(ranks.size()) - 1) / 3;
  const int middle = ranks[ranks.size() / 2];
  return {{ranks[0], 1}, {ranks[1], share}, {middle, share}, {ranks.back(), share}};
}

}  // namespace

std::vector<std::vector<Walked>> ranks_to_walk(const CallFacts& facts) {
  const auto hosts = hosts_in(facts);
  std::vector<std::vector<Walked>> walked;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    const bool stands_out = host == 0 || host == hosts.size() / 2 || host == hosts.size() - 1;
    if (facts.ranks <= kWholeRanks)
      walked.push_back(everyone(hosts[host]));
    else if (stands_out)
      walked.push_back(stand_ins(hosts[host]));
  }
  return walked;
}

schedule::Request request_of(const CallFacts& facts, int rank, int shots) {
  schedule::Request request;
  request.collective = facts.collective;
  request.size = facts.ranks;
  request.rank = rank;
  request.shots = shots;
  request.host_of = facts.host_of;
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

bool is_only_folded(const CallFacts& facts, const schedule::Op& recv) {
  return recv.dst.space == schedule::Space::scratch && has_reduction(facts.collective);
}

}  // namespace tutti::tuner
