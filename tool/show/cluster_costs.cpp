// Steps of a redistribution on a described cluster, priced as collectives of evenly spaced groups.
#include <algorithm>
#include <map>

#include "tool/show/redistribution.hpp"

namespace tutti::tool {
namespace {

using Kind = RedistributionStep::Kind;

Collective priced_as(Kind kind) {
  switch (kind) {
    case Kind::all_gather: return Collective::all_gather;
    case Kind::reduce_scatter: return Collective::reduce_scatter;
    case Kind::all_reduce: return Collective::all_reduce;
    case Kind::all_to_all:
    case Kind::transfer:
    case Kind::slice:
    case Kind::make_partial: break;
  }
  return Collective::all_to_all;
}

// How many ranks of a group along these axes share a host, where that is fewest.
int fewest_per_host(const MeshAxes& axes, const std::vector<int>& hosts,
                    const std::vector<int>& along) {
  std::map<Coordinates, std::map<int, int>> groups;  // ranks by host, by the group's first
  for (int position = 0; position < static_cast<int>(hosts.size()); ++position) {
    Coordinates first = coordinates_of(axes, position);
    for (const int axis : along) first[static_cast<std::size_t>(axis)] = 0;
    ++groups[first][hosts[static_cast<std::size_t>(position)]];
  }
  int fewest = static_cast<int>(hosts.size());
  for (const auto& [first, by_host] : groups) {
    int most = 0;
    for (const auto& [host, ranks] : by_host) most = std::max(most, ranks);
    fewest = std::min(fewest, most);
  }
  return fewest;
}

}  // namespace

RedistributionCosts cluster_costs(tutti::plan::Prices& prices, const MeshAxes& axes,
                                  const std::vector<int>& rank_at) {
  const int ranks_per_host = prices.cluster().ranks_per_host;
  std::vector<int> hosts;
  for (const int rank : rank_at) hosts.push_back(rank / ranks_per_host);
  const auto seconds = [&prices, axes, hosts, ranks_per_host](const StepTraffic& traffic) {
    const int here = fewest_per_host(axes, hosts, traffic.axes);
    const double bytes = traffic.kind == Kind::transfer
                             ? exchange_bytes(traffic, traffic.ranks, here)
                             : traffic.array_bytes;
    const int stride = std::max(1, ranks_per_host / here);
    return prices.collective(priced_as(traffic.kind), {traffic.ranks, stride}, bytes);
  };
  return {seconds, hosts};
}

}  // namespace tutti::tool
