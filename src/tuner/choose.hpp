// tuner/choose.hpp - which schedule for this call. Pure: every rank gets the same answer.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "schedule/catalog.hpp"
#include "tuner/machine.hpp"
#include "tutti/types.hpp"

namespace tutti::tuner {

// What all ranks know alike about a call.
struct Situation {
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;  // the whole array, as nccl-tests count it; 0 where ranks differ
  int ranks = 1;
  std::span<const int> host_of;  // host of each rank
  ReductionOrder order = ReductionOrder::any;
  bool uneven = false;     // a v-variant or one buffer per rank
  bool symmetric = false;  // all buffers are memory that every rank of the host has mapped
  // Machine of each rank, where several hosts are one machine and share its cores (ranks that are
  // linked by tcp though they need not be); empty: every host is one.
  std::span<const int> machine_of = {};
  // What there is to choose from.
  const schedule::Catalog* catalog = &schedule::Catalog::built_in();
};

struct Choice {
  Algorithm algorithm = Algorithm::direct;
  int shots = 2;
  Nanoseconds predicted{0};
  std::size_t segment_bytes = 0;  // of messages; 0: the group's default
  int streams = 0;                // of tcp links; 0: the group's default
};

// One row per candidate; the cheapest first. Never empty. Equal machines and situations give equal
// rows, on any rank.
std::vector<Choice> candidates(const Situation& situation,
                               const Machine& machine = built_in_machine());
Choice choose(const Situation& situation, const Machine& machine = built_in_machine());
// The parameters for a forced algorithm. Code::invalid_argument when it cannot serve the situation
// (not for this collective or size, cannot fold in rank order, cannot do uneven parts): the message
// lists those that can.
Result<Choice> choose_forced(const Situation& situation, Algorithm algorithm,
                             const Machine& machine = built_in_machine());

// For people: what was chosen from, one line per candidate, the first one marked.
std::string describe(const Situation& situation, std::span<const Choice> choices);

}  // namespace tutti::tuner
