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
    algorithms->second = all_algorithms(cluster_, key.first, key.second);
    for (const AlgorithmCost& each : algorithms->second) ops_ += each.ops();
  }
  double& best = found->second;
  best = HUGE_VAL;
  for (const AlgorithmCost& each : algorithms->second)
    best = std::min(best, each.with(std::exp2(power)).seconds);
  return best;
}

double Prices::collective(Collective collective, const GroupSeats& members, double bytes) {
  if (members.ranks < 2 || bytes <= 0) return 0;
  const int power = static_cast<int>(std::floor(std::log2(std::max(1.0, bytes))));
  const double low = at_power({collective, members}, power);
  const double high = std::max(low, at_power({collective, members}, power + 1));
  const double way = std::max(0.0, bytes / std::exp2(power) - 1);
  return low + way * (high - low);
}

}  // namespace tutti::plan
