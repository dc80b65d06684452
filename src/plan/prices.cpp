#include "plan/prices.hpp"

#include <algorithm>
#include <cmath>

namespace tutti::plan {
namespace {

// Schedules are read again when more than so many ops are kept: 50 bytes each.
constexpr std::size_t kMostOps = 2'000'000;

}  // namespace

double Prices::at_power(const Key& key, int power) {
  const auto [found, is_new] = known_.try_emplace({key, power});
  if (!is_new) return found->second;
  if (ops_ > kMostOps) {
    ready_.clear();
    ops_ = 0;
  }
  const auto [algorithms, is_unread] = ready_.try_emplace(key);
  if (is_unread) {
    algorithms->second = all_algorithms(shared_by(key.members.groups_on_host(cluster_)),
                                        key.collective, key.members, key.order);
    for (const AlgorithmCost& each : algorithms->second) ops_ += each.ops();
  }
  double& best = found->second;
  best = HUGE_VAL;
  for (const AlgorithmCost& each : algorithms->second)
    best = std::min(best, each.with(std::exp2(power)).seconds);
  return best;
}

const Cluster& Prices::shared_by(int groups) {
  if (groups == 1 || cluster_.host_bandwidth <= 0) return cluster_;
  const auto [found, is_new] = shared_.try_emplace(groups, cluster_);
  if (is_new) found->second.host_bandwidth /= groups;
  return found->second;
}

double Prices::collective(Collective collective, const GroupSeats& members, double bytes,
                          ReductionOrder order) {
  if (members.ranks < 2 || bytes <= 0) return 0;
  const int power = static_cast<int>(std::floor(std::log2(std::max(1.0, bytes))));
  const double low = at_power({collective, members, order}, power);
  const double high = std::max(low, at_power({collective, members, order}, power + 1));
  const double way = std::max(0.0, bytes / std::exp2(power) - 1);
  return low + way * (high - low);
}

}  // namespace tutti::plan
