// plan/prices.hpp - what collectives cost on one cluster, each asked for once: a plan has hundreds
// of equal buckets, a search thousands of equal plans.
//
// Thread-safety  one thread at a time.
#pragma once

#include <map>
#include <tuple>

#include "plan/cost.hpp"

namespace tutti::plan {

class Prices {
 public:
  // `cluster` is lent.
  explicit Prices(const Cluster& cluster) : cluster_(cluster) {}
  const Cluster& cluster() const { return cluster_; }

  // Seconds; 0 for a group of one. `bytes` is the whole array.
  double collective(Collective collective, const Placement& placement, double bytes) {
    if (placement.ranks < 2 || bytes <= 0) return 0;
    const Key key{static_cast<int>(collective), placement.ranks, placement.stride, bytes};
    const auto [found, is_new] = known_.try_emplace(key, 0.0);
    if (is_new) found->second = cost(cluster_, collective, placement, bytes).seconds;
    return found->second;
  }
  double send(const Placement& placement, double bytes) {
    return bytes > 0 ? send_seconds(cluster_, placement, bytes) : 0;
  }
  double flops_per_s() const {
    return cluster_.processor.peak_flops * cluster_.processor.efficiency;
  }

 private:
  using Key = std::tuple<int, int, int, double>;
  const Cluster& cluster_;
  std::map<Key, double> known_;
};

}  // namespace tutti::plan
