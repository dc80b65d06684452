// What no algorithm beats: docs/algorithms/simulator.md has the formulas.
#include <algorithm>
#include <cmath>

#include "plan/collective_cost.hpp"
#include "tutti/shape.hpp"

namespace tutti::plan {
namespace {

// The least time until one message has become `ranks` many, when everybody who has it passes it on
// every `gap` and a message takes `latency` (Karp and others' optimal LogP broadcast).
double spreading(int ranks, double latency, double gap) {
  if (ranks < 2) return 0;
  if (gap <= 0) return latency;
  const auto ways = static_cast<std::size_t>(std::max(1.0, std::floor(latency / gap)));
  std::vector<double> informed = {1};  // after i gaps
  for (std::size_t i = 1;; ++i) {
    const double more = i >= ways ? informed[i - ways] : 0;
    informed.push_back(informed[i - 1] + more);
    if (informed.back() >= ranks) return std::max(latency, static_cast<double>(i) * gap);
  }
}

// Whether everybody has to hear of everybody, or of one.
bool all_hear(Collective collective) {
  const CollectiveShape& shape = shape_of(collective);
  return !shape.is_prefix() && !(shape.rooted && shape.has_parts());
}

// Ranks of one measured host pass no messages: they meet, and each does its even share of the copying
// in memory that all of them see. One store can serve a fold and its distribution, so that an
// all_reduce need not move the array twice.
double memory_bound(const tuner::Machine& machine, Collective collective, int ranks, double bytes) {
  const CollectiveShape& shape = shape_of(collective);
  double share = std::min(1.0, bus_factor(collective, ranks));
  if (shape.rooted) share *= shape.has_parts() ? 1.0 / ranks : (ranks - 1.0) / ranks;
  if (shape.folds() && collective != Collective::all_reduce) share /= 2;  // read, hardly written
  const double moved = share * bytes;
  const double copying = moved > 0 ? machine.copy.seconds(moved) * machine.crowding(ranks) : 0;
  return std::max(copying, machine.meet_seconds(ranks));
}

}  // namespace

double lower_bound(const Cluster& cluster, Collective collective, const GroupSeats& members,
                   double bytes) {
  if (members.ranks < 2) return 0;
  const int ranks = members.ranks;
  const int per_host = members.per_host(cluster);
  const int hosts = members.hosts(cluster);
  if (cluster.machine && hosts == 1)
    return memory_bound(*cluster.machine, collective, ranks, bytes);
  const Wire& near = cluster.within;
  const Wire& far = cluster.between;
  const bool by_switches =
      cluster.in_network_reduction && hosts > 1 && collective == Collective::all_reduce;
  // What a rank must move, over all its wires.
  const double both = (per_host > 1 ? near.bandwidth : 0) + (hosts > 1 ? far.bandwidth : 0);
  const double at_rank = (by_switches ? 1 : bus_factor(collective, ranks)) * bytes / both;
  // What lies on other hosts must come in, by all of a host's ways at once.
  const double way_out = cluster.host_bandwidth > 0
                             ? std::min(far.bandwidth, cluster.host_bandwidth / per_host)
                             : far.bandwidth;
  const double shares = bus_factor(collective, ranks) * ranks / (ranks - 1);
  const double outside = static_cast<double>(ranks - per_host) / ranks;
  const double at_host =
      hosts > 1 ? (by_switches ? 1 : shares * outside) * bytes / (per_host * way_out) : 0;
  // How fast the news can spread.
  double news = hosts > 1 ? far.latency : near.latency;
  if (all_hear(collective) && !by_switches)
    news = std::max(
        news, hosts > 1 ? spreading(hosts, far.latency, std::max(far.overhead, 1e-9) / per_host)
                        : spreading(ranks, near.latency, std::max(near.overhead, 1e-9)));
  return std::max({at_rank, at_host, news});
}

}  // namespace tutti::plan
