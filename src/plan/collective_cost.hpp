// plan/collective_cost.hpp - what a collective costs on a described cluster: its schedule, played in
// virtual time.
//
//   const CollectiveCost best = cheapest(cluster, Collective::all_reduce, {.ranks = 64}, 1e9);
//   best.seconds; to_string(best.algorithm);
//
// Groups of some hundreds of ranks and more are continued from smaller ones (cost/continuation.hpp);
// plan/simulate.hpp plays groups of any size. On a cluster with a `machine` (one that was measured)
// the tuner's estimate is asked instead, and corrected by what calibration saw.
//
// An answer takes a millisecond or so: those who ask often ask plan/prices.hpp.
#pragma once

#include <optional>
#include <vector>

#include "cost/continuation.hpp"
#include "plan/cluster.hpp"
#include "tutti/types.hpp"

namespace tutti::plan {

// Where the ranks of one group sit: `stride` ranks of the cluster apart.
struct GroupSeats {
  int ranks = 1;
  int stride = 1;

  // Members on the fullest host, and hosts.
  int per_host(const Cluster& cluster) const;
  int hosts(const Cluster& cluster) const;
  // Groups like this one that a host has ranks of: they have their collectives at the same time.
  int groups_on_host(const Cluster& cluster) const;
  friend auto operator<=>(const GroupSeats&, const GroupSeats&) = default;
};

struct CollectiveCost {
  double seconds = 0;
  Algorithm algorithm = Algorithm::automatic;
  double bytes_per_rank = 0;  // that the busiest rank sends
  double bus_bandwidth = 0;   // bytes/s, nccl-tests' convention
  int steps = 0;              // messages one after another, on the longest way
};

// One algorithm, to be asked with any number of bytes.
class AlgorithmCost {
 public:
  // Nothing where it does not exist for this collective and these members, or folds in another order
  // (a tree of switches keeps none). Algorithm::in_network: by the cluster's switches, or one that all
  // reach where it says nothing of any. `cluster` is lent.
  static std::optional<AlgorithmCost> of(const Cluster& cluster, Collective collective,
                                         Algorithm algorithm, const GroupSeats& members,
                                         ReductionOrder order = ReductionOrder::any);

  // `bytes` is the whole array, as nccl-tests count it.
  CollectiveCost with(double bytes) const;
  std::size_t ops() const;  // that are kept for it

 private:
  AlgorithmCost(const Cluster& cluster, Collective collective, Algorithm algorithm,
                const GroupSeats& members, ReductionOrder order)
      : cluster_(&cluster),
        collective_(collective),
        algorithm_(algorithm),
        members_(members),
        order_(order) {}

  const Cluster* cluster_;
  Collective collective_;
  Algorithm algorithm_;
  GroupSeats members_;
  ReductionOrder order_;
  std::vector<cost::CollectiveTime> forms_;  // direct all_reduce has two
};

// All that there are, in the order of Algorithm; the switches' own last. ReductionOrder::rank: those that
// fold so.
std::vector<AlgorithmCost> all_algorithms(const Cluster& cluster, Collective collective,
                                          const GroupSeats& members,
                                          ReductionOrder order = ReductionOrder::any);
std::vector<CollectiveCost> costs(const Cluster& cluster, Collective collective,
                                  const GroupSeats& members, double bytes,
                                  ReductionOrder order = ReductionOrder::any);
CollectiveCost cheapest(const Cluster& cluster, Collective collective, const GroupSeats& members,
                        double bytes);
// One of them; nothing where it does not exist.
std::optional<CollectiveCost> cost_of(const Cluster& cluster, Collective collective,
                                      Algorithm algorithm, const GroupSeats& members, double bytes);
// What no algorithm beats: the bytes that a rank and a host must move, and how fast one message can
// become `ranks` many when a core can begin another every `overhead`; on one measured host, what
// copying and meeting take there.
double lower_bound(const Cluster& cluster, Collective collective, const GroupSeats& members,
                   double bytes);
// One message from each rank to the next of its group, the slowest of them: one between hosts, where the group
// leaves its host, which shares the way out with those of all groups beside it.
double send_seconds(const Cluster& cluster, const GroupSeats& members, double bytes);

}  // namespace tutti::plan
