// plan/prices.hpp - what collectives cost on one cluster, for those who ask often: a plan has
// hundreds of buckets, a search thousands of plans.
//
// Each collective is costed at powers of two of bytes, when they are asked for
// (plan/collective_cost.hpp); in between its time is interpolated, straight and never falling.
//
// Whoever asks has as many groups at once as ranks permit, each with the same collective: those that a host has
// ranks of share its way out.
//
// Thread-safety  one thread at a time.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "plan/collective_cost.hpp"

namespace tutti::plan {

class Prices {
 public:
  // `cluster` is lent.
  explicit Prices(const Cluster& cluster) : cluster_(cluster) {}
  const Cluster& cluster() const { return cluster_; }

  // Seconds of the fastest algorithm; 0 for a group of one. `bytes` is the whole array.
  double collective(Collective collective, const GroupSeats& members, double bytes,
                    ReductionOrder order = ReductionOrder::any);
  double send(const GroupSeats& members, double bytes) const {
    return bytes > 0 ? send_seconds(cluster_, members, bytes) : 0;
  }
  double flops_per_s() const {
    return cluster_.processor.peak_flops * cluster_.processor.efficiency;
  }

 private:
  struct Key {
    Collective collective;
    GroupSeats members;
    ReductionOrder order;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  double at_power(const Key& key, int power);
  const Cluster& shared_by(int groups);

  const Cluster& cluster_;
  std::map<int, Cluster> shared_;                // by how many groups share the way out of a host
  std::map<std::pair<Key, int>, double> known_;  // seconds, by power of two
  std::map<Key, std::vector<AlgorithmCost>> ready_;  // schedules that were read, to be run again
  std::size_t ops_ = 0;                              // of those
};

}  // namespace tutti::plan
