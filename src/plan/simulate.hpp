// plan/simulate.hpp - runs schedules in virtual time on a described cluster (cost/simulate.hpp).
//
//   auto times = simulate(cluster, std::vector<CollectiveJob>{{.algorithm = Algorithm::ring,
//                                                              .ranks = 1024, .bytes = 1e6}});
//   (*times)[0].seconds
//
// Thread-safety  pure functions.
#pragma once

#include <vector>

#include "cost/continuation.hpp"
#include "plan/cluster.hpp"

namespace tutti::plan {

using cost::CollectiveJob;
using cost::Simulated;
using cost::SimulateOptions;

// The first `seats` ranks of a cluster, by its described wires.
cost::Site site_of(const Cluster& cluster, int seats);

// One collective, ready to be run with any number of bytes. Algorithm::in_network: by the cluster's own
// switches (in_network_reduction), else by one that all reach. Code::invalid_argument where it does not fit the cluster or its algorithm
// does not exist; Code::unsupported where it has more ops than `most_ops`.
Result<cost::Playable> playable(const Cluster& cluster, const CollectiveJob& job,
                                const SimulateOptions& options = {});

// One answer per job; jobs share the cluster's wires and cores. Switches that fold are simulated
// alone.
Result<std::vector<Simulated>> simulate(const Cluster& cluster,
                                        const std::vector<CollectiveJob>& jobs,
                                        const SimulateOptions& options = {});

}  // namespace tutti::plan
