// plan/cost.hpp - what a collective costs on a described cluster, by closed form: cheap enough for
// a hundred thousand answers a second. The simulator (plan/simulate.hpp) is the dear, exact answer.
//
//   const CollectiveCost best = cost(cluster, Collective::all_reduce, {.ranks = 64}, 1e9);
//   best.seconds; to_string(best.algorithm);
//
// On a cluster with a `machine` (one that was measured) the tuner's estimate is asked instead, and
// corrected by what calibration saw: a millisecond or so per answer, so keep the answers.
#pragma once

#include <optional>
#include <vector>

#include "plan/cluster.hpp"
#include "tutti/types.hpp"

namespace tutti::plan {

// Where the ranks of one group sit: members `stride` ranks apart, so that ranks_per_host / stride
// of them (at least one) share a host.
struct Placement {
  int ranks = 1;
  int stride = 1;

  // Members on one host, and hosts.
  int per_host(const Cluster& cluster) const;
  int hosts(const Cluster& cluster) const;
};

struct CollectiveCost {
  double seconds = 0;
  Algorithm algorithm = Algorithm::automatic;  // automatic: the switches' own, where they fold
  double bytes_per_rank = 0;                   // that the busiest rank sends
  double bus_bandwidth = 0;                    // bytes/s, nccl-tests' convention
  int steps = 0;                               // messages one after another, on the longest way
};

// The cheapest algorithm for `bytes` (the whole array, as nccl-tests count it). Beside the catalog
// it knows all_gather and reduce_scatter by rails (closed_forms.hpp), named hierarchical.
CollectiveCost cost(const Cluster& cluster, Collective collective, const Placement& placement,
                    double bytes);
// One algorithm; nothing where it does not exist for this collective and placement.
std::optional<CollectiveCost> cost(const Cluster& cluster, Collective collective,
                                   Algorithm algorithm, const Placement& placement, double bytes);
// All of the catalog, in the order of Algorithm; the switches' own last.
std::vector<CollectiveCost> costs(const Cluster& cluster, Collective collective,
                                  const Placement& placement, double bytes);
// What no algorithm beats: the bytes that a rank and a host must move, and how fast one message can
// become `ranks` many when a core can begin another every `overhead`.
double lower_bound(const Cluster& cluster, Collective collective, const Placement& placement,
                   double bytes);
// One message from a rank to another `stride` ranks on.
double send_seconds(const Cluster& cluster, const Placement& placement, double bytes);

}  // namespace tutti::plan
