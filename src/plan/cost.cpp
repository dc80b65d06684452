#include "plan/cost.hpp"

#include <algorithm>
#include <cmath>

#include "plan/closed_forms.hpp"
#include "schedule/catalog.hpp"
#include "tuner/choose.hpp"
#include "tutti/shape.hpp"

namespace tutti::plan {
namespace {

// ---- clusters that were measured

std::vector<int> hosts_of(const Cluster& cluster, const Placement& placement) {
  const int per_host = placement.per_host(cluster);
  std::vector<int> host_of;
  for (int rank = 0; rank < placement.ranks; ++rank) host_of.push_back(rank / per_host);
  return host_of;
}

// The ratio at `bytes`, straight between the points in the logarithms of both.
double ratio_at(const Correction& correction, double bytes) {
  const auto& points = correction.points;
  const auto right =
      std::find_if(points.begin(), points.end(), [&](const auto& p) { return p.bytes >= bytes; });
  if (right == points.begin()) return points.front().ratio;
  if (right == points.end()) return points.back().ratio;
  const auto& left = *(right - 1);
  const double way = std::log(bytes / left.bytes) / std::log(right->bytes / left.bytes);
  return std::exp((1 - way) * std::log(left.ratio) + way * std::log(right->ratio));
}

// Between the numbers of ranks that were measured likewise; 1 where nothing was.
double correction_of(const Cluster& cluster, Collective collective, Algorithm algorithm, int ranks,
                     double bytes) {
  const Correction* below = nullptr;
  const Correction* above = nullptr;
  for (const Correction& each : cluster.corrections) {
    if (each.collective != collective || each.algorithm != algorithm || each.points.empty())
      continue;
    if (each.ranks <= ranks && (below == nullptr || each.ranks > below->ranks)) below = &each;
    if (each.ranks >= ranks && (above == nullptr || each.ranks < above->ranks)) above = &each;
  }
  if (below == nullptr && above == nullptr) return 1;
  if (below == nullptr || above == nullptr || below == above)
    return ratio_at(below != nullptr ? *below : *above, bytes);
  const double way = std::log(static_cast<double>(ranks) / below->ranks) /
                     std::log(static_cast<double>(above->ranks) / below->ranks);
  return std::exp((1 - way) * std::log(ratio_at(*below, bytes)) +
                  way * std::log(ratio_at(*above, bytes)));
}

std::optional<double> measured_seconds(const Cluster& cluster, Collective collective,
                                       Algorithm algorithm, const Placement& placement,
                                       double bytes) {
  const std::vector<int> host_of = hosts_of(cluster, placement);
  tuner::Situation situation;
  situation.collective = collective;
  situation.bytes = static_cast<std::size_t>(std::llround(bytes));
  situation.ranks = placement.ranks;
  situation.host_of = host_of;
  const auto choice = tuner::choose_forced(situation, algorithm, *cluster.machine);
  if (!choice.ok()) return std::nullopt;
  return static_cast<double>(choice->predicted.count()) * 1e-9 *
         correction_of(cluster, collective, algorithm, placement.ranks, bytes);
}

CollectiveCost finished(CollectiveCost cost, const Placement& placement, Collective collective,
                        double bytes) {
  if (cost.seconds > 0 && placement.ranks > 1)
    cost.bus_bandwidth = bytes / cost.seconds * bus_factor(collective, placement.ranks);
  return cost;
}

bool switches_fold(const Cluster& cluster, Collective collective, const Placement& placement) {
  return cluster.in_network_reduction && collective == Collective::all_reduce &&
         placement.hosts(cluster) > 1 && !cluster.machine;
}

}  // namespace

int Placement::per_host(const Cluster& cluster) const {
  return std::clamp(cluster.ranks_per_host / std::max(1, stride), 1, std::max(1, ranks));
}

int Placement::hosts(const Cluster& cluster) const {
  const int here = per_host(cluster);
  return (std::max(1, ranks) + here - 1) / here;
}

std::optional<CollectiveCost> cost(const Cluster& cluster, Collective collective,
                                   Algorithm algorithm, const Placement& placement, double bytes) {
  if (schedule::find(collective, algorithm) == nullptr) return std::nullopt;
  if (placement.ranks < 2) return CollectiveCost{0, algorithm, 0, 0, 0};
  const ClosedForms forms(cluster, placement);
  auto found = forms.of(collective, algorithm, bytes);
  if (!found) return std::nullopt;
  if (cluster.machine) {
    const auto seconds = measured_seconds(cluster, collective, algorithm, placement, bytes);
    if (!seconds) return std::nullopt;
    found->seconds = *seconds;
  }
  return finished(*found, placement, collective, bytes);
}

std::vector<CollectiveCost> costs(const Cluster& cluster, Collective collective,
                                  const Placement& placement, double bytes) {
  std::vector<CollectiveCost> rows;
  for (int i = 1; i < kAlgorithms; ++i)
    if (auto found = cost(cluster, collective, static_cast<Algorithm>(i), placement, bytes))
      rows.push_back(*found);
  if (switches_fold(cluster, collective, placement))
    rows.push_back(
        finished(ClosedForms(cluster, placement).in_network(bytes), placement, collective, bytes));
  return rows;
}

CollectiveCost cost(const Cluster& cluster, Collective collective, const Placement& placement,
                    double bytes) {
  if (placement.ranks < 2) return {};
  const ClosedForms forms(cluster, placement);
  std::optional<CollectiveCost> best;
  const auto consider = [&](const std::optional<CollectiveCost>& row) {
    if (row && (!best || row->seconds < best->seconds)) best = row;
  };
  for (int i = 1; i < kAlgorithms; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    if (schedule::find(collective, algorithm) == nullptr) continue;
    consider(cluster.machine ? cost(cluster, collective, algorithm, placement, bytes)
                             : forms.of(collective, algorithm, bytes));
  }
  if (!cluster.machine) consider(forms.by_rails(collective, bytes));
  if (switches_fold(cluster, collective, placement)) consider(forms.in_network(bytes));
  return best ? finished(*best, placement, collective, bytes) : CollectiveCost{};
}

double lower_bound(const Cluster& cluster, Collective collective, const Placement& placement,
                   double bytes) {
  return ClosedForms(cluster, placement).lower_bound(collective, bytes);
}

double send_seconds(const Cluster& cluster, const Placement& placement, double bytes) {
  const bool within = placement.stride < cluster.ranks_per_host;
  if (cluster.machine) {
    const auto& link = within ? cluster.machine->memory : cluster.machine->tcp;
    return link.latency_s + link.message_s + link.bytes.seconds(bytes);
  }
  const Wire& wire = within ? cluster.within : cluster.between;
  return wire.latency + bytes / wire.bandwidth;
}

}  // namespace tutti::plan
