// plan/cost.hpp - what a collective costs on a described cluster, by closed form: cheap enough for
// ten thousand layouts a second. The simulator (plan/simulate.hpp) is the dear, exact answer.
#pragma once

#include "plan/cluster.hpp"
#include "tutti/types.hpp"

namespace tutti::plan {

// Where the ranks of one group sit: members `stride` ranks apart, so that ranks_per_host / stride
// of them (at least one) share a host.
struct Placement {
  int ranks = 1;
  int stride = 1;
};

struct CollectiveCost {
  double seconds = 0;
  Algorithm algorithm = Algorithm::automatic;
  double bytes_per_rank = 0;  // that the busiest rank sends
  double bus_bandwidth = 0;   // bytes/s, nccl-tests' convention
};

// The cheapest algorithm for `bytes` (the whole array, as nccl-tests count it).
CollectiveCost cost(const Cluster& cluster, Collective collective, const Placement& placement,
                    double bytes);
// One message from a rank to another `stride` ranks on.
double send_seconds(const Cluster& cluster, const Placement& placement, double bytes);

}  // namespace tutti::plan
