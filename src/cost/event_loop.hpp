// cost/event_loop.hpp - plays a graph of ops in virtual time.
//
//   rank 0  core ▌  ▓▓    ▌           An op begins as soon as what it reads is there and what it
//           out  ██████    ██████     needs is free: its core (▌ handling a message, ▓ folding),
//   rank 1  in     ██████    ██████   its ways out and in, its host's, the switches'. What is longer
//           core        ▌▓▓▓▓         than a segment hands on its first piece early.
//
// Deterministic: equal arguments give equal bits. A graph can be played any number of times.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "cost/network.hpp"
#include "cost/op_graph.hpp"

namespace tutti::cost {

struct PlayOptions {
  bool whole_messages = false;  // as textbooks have them, not in segments
  double jitter = 0;            // every latency grows by up to this share of it …
  std::uint64_t seed = 1;       // … drawn from this
};

// What differs from job to job.
struct JobSize {
  double bytes = 0;  // the whole array
  double start_s = 0;
};

// When a job's last op ended, and the messages on its longest way.
struct PlayedJob {
  double seconds = 0;
  int steps = 0;
};

// One answer per job. Empty where ops wait for each other for ever.
std::vector<PlayedJob> play(const OpGraph& graph, const Site& site, const Standing& standing,
                            const std::vector<JobSize>& jobs, const PlayOptions& options);

}  // namespace tutti::cost
