#include "plan/collective_cost.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cost/continuation.hpp"
#include "plan/in_network.hpp"
#include "plan/simulate.hpp"
#include "schedule/catalog.hpp"
#include "tuner/choose.hpp"
#include "tutti/shape.hpp"

namespace tutti::plan {
namespace {

// ---- clusters that were measured

std::vector<int> hosts_of(const Cluster& cluster, const GroupSeats& members) {
  std::vector<int> host_of;
  for (int rank = 0; rank < members.ranks; ++rank)
    host_of.push_back(rank * members.stride / cluster.ranks_per_host);
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
                                       Algorithm algorithm, const GroupSeats& members,
                                       ReductionOrder order, double bytes) {
  const std::vector<int> host_of = hosts_of(cluster, members);
  tuner::CallFacts facts;
  facts.collective = collective;
  facts.bytes = static_cast<std::size_t>(std::llround(bytes));
  facts.ranks = members.ranks;
  facts.host_of = host_of;
  facts.order = order;
  const auto choice = tuner::choose_forced(facts, algorithm, *cluster.machine);
  if (!choice.ok() || choice->predicted == tuner::kUnknownTime) return std::nullopt;
  return static_cast<double>(choice->predicted.count()) * 1e-9 *
         correction_of(cluster, collective, algorithm, members.ranks, bytes);
}

// ---- described ones

// A smaller group stands for one that leaves its leaf switches: theirs are as small as can be
// without being in the way of a single message.
Cluster cluster_for(const Cluster& cluster, bool is_smaller) {
  Cluster small = cluster;
  if (is_smaller && cluster.oversubscription > 1)
    small.hosts_per_switch = std::min(
        cluster.hosts_per_switch, static_cast<int>(std::bit_ceil(
                                      static_cast<unsigned>(std::ceil(cluster.oversubscription)))));
  return small;
}

Result<cost::CollectiveTime> played(const Cluster& cluster, const CollectiveJob& job) {
  const GroupSeats members{job.ranks, job.stride};
  return cost::CollectiveTime::of(job.ranks, members.per_host(cluster),
                                  [&](int ranks) -> Result<cost::Playable> {
                                    CollectiveJob part = job;
                                    part.ranks = ranks;
                                    return playable(cluster_for(cluster, ranks < job.ranks), part);
                                  });
}

// Of elements that are folded in their own type.
bool keeps_order(const Cluster& cluster, Collective collective, Algorithm algorithm,
                 const GroupSeats& members, ReductionOrder order) {
  if (order == ReductionOrder::any) return true;
  const schedule::Entry* entry = schedule::find(collective, algorithm);
  if (entry == nullptr) return false;
  const std::vector<int> host_of = hosts_of(cluster, members);
  schedule::Request request{.collective = collective, .size = members.ranks};
  request.host_of = host_of;
  request.order = order;
  return entry->keeps_order(request);
}

bool switches_fold(const Cluster& cluster, Collective collective, const GroupSeats& members) {
  return cluster.in_network_reduction && collective == Collective::all_reduce &&
         members.hosts(cluster) > 1 && !cluster.machine;
}

}  // namespace

int GroupSeats::per_host(const Cluster& cluster) const {
  return std::clamp((cluster.ranks_per_host + stride - 1) / stride, 1, std::max(1, ranks));
}

int GroupSeats::hosts(const Cluster& cluster) const {
  if (stride >= cluster.ranks_per_host) return std::max(1, ranks);
  return static_cast<int>(std::int64_t{std::max(0, ranks - 1)} * stride / cluster.ranks_per_host) +
         1;
}

int GroupSeats::groups_on_host(const Cluster& cluster) const {
  return std::max(1, cluster.ranks_per_host / per_host(cluster));
}

std::optional<AlgorithmCost> AlgorithmCost::of(const Cluster& cluster, Collective collective,
                                               Algorithm algorithm, const GroupSeats& members,
                                               ReductionOrder order) {
  AlgorithmCost made(cluster, collective, algorithm, members, order);
  if (members.ranks < 2) return made;
  if (!keeps_order(cluster, collective, algorithm, members, order)) return std::nullopt;
  if (cluster.machine && !measured_seconds(cluster, collective, algorithm, members, order, 0))
    return std::nullopt;
  const bool has_two = algorithm == Algorithm::direct && collective == Collective::all_reduce;
  for (int shots = 2; shots >= (has_two ? 1 : 2); --shots) {
    auto form = played(cluster, {.collective = collective,
                                 .algorithm = algorithm,
                                 .ranks = members.ranks,
                                 .shots = shots,
                                 .order = order,
                                 .stride = members.stride});
    if (!form.ok()) return std::nullopt;
    made.forms_.push_back(*std::move(form));
  }
  return made;
}

CollectiveCost AlgorithmCost::with(double bytes) const {
  CollectiveCost cost{0, algorithm_, 0, 0, 0};
  for (const cost::CollectiveTime& form : forms_) {
    const Simulated each = form.with(bytes);
    if (cost.seconds == 0 || each.seconds < cost.seconds)
      cost = {each.seconds, algorithm_, each.bytes_per_rank, 0, each.steps};
  }
  if (cluster_->machine && members_.ranks > 1)
    cost.seconds = *measured_seconds(*cluster_, collective_, algorithm_, members_, order_, bytes);
  if (cost.seconds > 0)
    cost.bus_bandwidth = bytes / cost.seconds * bus_factor(collective_, members_.ranks);
  return cost;
}

std::size_t AlgorithmCost::ops() const {
  std::size_t sum = 0;
  for (const cost::CollectiveTime& form : forms_) sum += form.ops();
  return sum;
}

std::vector<AlgorithmCost> all_algorithms(const Cluster& cluster, Collective collective,
                                          const GroupSeats& members, ReductionOrder order) {
  std::vector<Algorithm> names = schedule::algorithms_for(collective);
  std::sort(names.begin(), names.end());
  const bool has_levels = members.hosts(cluster) > 1 && members.per_host(cluster) > 1;
  if (!has_levels) std::erase_if(names, schedule::wants_hosts);
  // Switches that make a tree fold in an order of their own.
  if (!switches_fold(cluster, collective, members) || order != ReductionOrder::any)
    std::erase(names, Algorithm::in_network);
  std::vector<AlgorithmCost> algorithms;
  for (const Algorithm name : names)
    if (auto made = AlgorithmCost::of(cluster, collective, name, members, order))
      algorithms.push_back(*std::move(made));
  return algorithms;
}

std::vector<CollectiveCost> costs(const Cluster& cluster, Collective collective,
                                  const GroupSeats& members, double bytes, ReductionOrder order) {
  std::vector<CollectiveCost> rows;
  for (const AlgorithmCost& each : all_algorithms(cluster, collective, members, order))
    rows.push_back(each.with(bytes));
  return rows;
}

CollectiveCost cheapest(const Cluster& cluster, Collective collective, const GroupSeats& members,
                        double bytes) {
  if (members.ranks < 2) return {};
  const auto rows = costs(cluster, collective, members, bytes);
  const auto best = std::min_element(
      rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return best == rows.end() ? CollectiveCost{} : *best;
}

std::optional<CollectiveCost> cost_of(const Cluster& cluster, Collective collective,
                                      Algorithm algorithm, const GroupSeats& members,
                                      double bytes) {
  const auto made = AlgorithmCost::of(cluster, collective, algorithm, members);
  return made ? std::optional(made->with(bytes)) : std::nullopt;
}

double send_seconds(const Cluster& cluster, const GroupSeats& members, double bytes) {
  const bool within = members.hosts(cluster) == 1;
  const Wire& wire = within ? cluster.within : cluster.between;
  double seconds = wire.latency + bytes / wire.bandwidth;
  if (cluster.machine) {
    const auto& link = within ? cluster.machine->memory : cluster.machine->tcp;
    seconds = link.latency_s + link.message_s + link.bytes.seconds(bytes);
  }
  if (within || cluster.host_bandwidth <= 0) return seconds;
  const double beside = std::min(members.stride, cluster.ranks_per_host) * bytes;
  return seconds + std::max(0.0, beside / cluster.host_bandwidth - bytes / wire.bandwidth);
}

}  // namespace tutti::plan
