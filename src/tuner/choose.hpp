// tuner/choose.hpp - which schedule for this call. Pure: every rank gets the same answer.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "schedule/schedule.hpp"
#include "tutti/types.hpp"

namespace tutti::tuner {

// What all ranks know alike about a call.
struct Situation {
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;  // the whole array, as nccl-tests count it; 0 where ranks differ
  int ranks = 1;
  std::span<const int> host_of;  // host of each rank
  ReductionOrder order = ReductionOrder::any;
  bool uneven = false;  // a v-variant or one buffer per rank
};

struct Choice {
  Algorithm algorithm = Algorithm::direct;
  int shots = 2;
  Nanoseconds predicted{0};
};

// One row per candidate; the cheapest first. Never empty.
std::vector<Choice> candidates(const Situation& situation);
Choice choose(const Situation& situation);
// The parameters for a forced algorithm. Code::invalid_argument when it cannot serve the situation
// (not for this collective or size, cannot fold in rank order, cannot do uneven parts): the message
// lists those that can.
Result<Choice> choose_forced(const Situation& situation, Algorithm algorithm);

}  // namespace tutti::tuner
