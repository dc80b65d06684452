#include "tuner/walk.hpp"

#include <algorithm>
#include <numeric>

#include "topology/topology.hpp"
#include "tuner/cost.hpp"

namespace tutti::tuner {
namespace {

std::vector<std::vector<int>> hosts_in(const Situation& situation) {
  if (!situation.host_of.empty()) return topology::ranks_by_host(situation.host_of);
  std::vector<int> all(static_cast<std::size_t>(situation.ranks));
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

std::vector<std::vector<Walked>> ranks_to_walk(const Situation& situation) {
  const auto hosts = hosts_in(situation);
  std::vector<std::vector<Walked>> walked;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    const bool stands_out = host == 0 || host == hosts.size() / 2 || host == hosts.size() - 1;
    if (situation.ranks <= kWholeRanks)
      walked.push_back(everyone(hosts[host]));
    else if (stands_out)
      walked.push_back(stand_ins(hosts[host]));
  }
  return walked;
}

schedule::Request request_of(const Situation& situation, int rank, int shots) {
  schedule::Request request;
  request.collective = situation.collective;
  request.size = situation.ranks;
  request.rank = rank;
  request.shots = shots;
  request.host_of = situation.host_of;
  return request;
}

double total_bytes(const Situation& situation) {
  return static_cast<double>(situation.uneven && situation.bytes == 0 ? kUnknownBytes
                                                                      : situation.bytes);
}

double chunk_bytes(const schedule::Program& program, double total) {
  const std::uint64_t parts = schedule::part_count(program);
  return parts == 0 ? 0 : total / static_cast<double>(parts);
}

int company_of(const Situation& situation, int rank) {
  const auto& where = situation.machine_of.empty() ? situation.host_of : situation.machine_of;
  if (where.empty()) return situation.ranks;
  return static_cast<int>(
      std::count(where.begin(), where.end(), where[static_cast<std::size_t>(rank)]));
}

bool is_only_folded(const Situation& situation, const schedule::Op& recv) {
  return recv.dst.space == schedule::Space::scratch && has_reduction(situation.collective);
}

}  // namespace tutti::tuner
