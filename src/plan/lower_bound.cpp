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

}  // namespace

double lower_bound(const Cluster& cluster, Collective collective, const GroupSeats& members,
                   double bytes) {
  if (members.ranks < 2) return 0;
  const int ranks = members.ranks;
  const int per_host = members.per_host(cluster);
  const int hosts = members.hosts(cluster);
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
