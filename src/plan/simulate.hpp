// plan/simulate.hpp - runs schedules in virtual time on a described cluster.
//
//   rank 0  core ▌  ▓▓    ▌           An op begins as soon as what it reads is there and what it
//           out  ██████    ██████     needs is free: its core (▌ handling a message, ▓ folding),
//           its
//   rank 1  in     ██████    ██████   ways out and in, its host's, the switches'. Messages longer
//           core        ▌▓▓▓▓         than a segment hand on their first piece early.
//
// The schedules are those of the catalog, op by op: what is simulated is what runs. Ranks whose
// programs are alike are simulated once (docs/algorithms/simulator.md), which is exact.
// Deterministic: equal arguments give equal bits.
//
//   auto times = simulate(cluster, std::vector<Job>{{.algorithm = Algorithm::ring, .ranks = 1024,
//   .bytes = 1e6}});
//   (*times)[0].seconds
//
// Thread-safety  a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/cluster.hpp"
#include "schedule/schedule.hpp"
#include "tutti/types.hpp"

namespace tutti::plan {

// One collective. Ranks of its group sit `stride` seats apart, from seat `first_seat` on.
struct Job {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::ring;  // automatic: the switches' own (in_network_reduction)
  int ranks = 1;
  double bytes = 0;  // the whole array
  int root = 0;
  int shots = 2;     // of direct all_reduce
  double start = 0;  // s
  int first_seat = 0;
  int stride = 1;
};

struct SimulateOptions {
  double segment_bytes = 128 << 10;  // 0: messages go whole
  bool use_symmetry = true;
  double jitter = 0;                  // every message's latency grows by up to this share of it …
  std::uint64_t seed = 1;             // … drawn from this
  std::size_t most_ops = 12'000'000;  // about 150 bytes each
};

struct Simulated {
  double seconds = 0;         // from the job's start to its last op's end
  double bytes_per_rank = 0;  // that the busiest rank sends
  int steps = 0;              // messages one after another on the longest way
  std::uint64_t messages = 0;
  int simulated_ranks = 0;  // fewer than there are where ranks are alike
};

// One answer per job; jobs share the cluster's wires and cores. Code::invalid_argument where a job
// does not fit the cluster or its algorithm does not exist; Code::unsupported where it has more ops
// than `most_ops`.
Result<std::vector<Simulated>> simulate(const Cluster& cluster, const std::vector<Job>& jobs,
                                        const SimulateOptions& options = {});
// Any programs, one per rank in order, on seats 0, 1, ….
Result<Simulated> simulate_programs(const Cluster& cluster,
                                    const std::vector<schedule::Program>& programs, double bytes,
                                    const SimulateOptions& options = {});

}  // namespace tutti::plan
