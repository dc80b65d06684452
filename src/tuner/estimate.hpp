// tuner/estimate.hpp - how long a schedule takes on a machine, read off its own programs.
//
// On one host a direct schedule is played on shared memory (tuner/stage.hpp). Everything else goes
// by messages, in segments whose size is chosen here too: in small groups op by op
// (tuner/timeline.hpp), in large ones step by step, with some ranks that stand for the others
// (tuner/messages.hpp).
#pragma once

#include "core/clock.hpp"
#include "schedule/catalog.hpp"
#include "tuner/choose.hpp"
#include "tuner/machine.hpp"
#include "tuner/walk.hpp"

namespace tutti::tuner {

struct Estimate {
  Nanoseconds time{0};
  std::size_t segment_bytes = 0;  // 0: the default's is as good
  int streams = 0;                // 0: likewise
};

// The entry must apply to the situation.
Estimate estimate(const schedule::Entry& entry, const Situation& situation, int shots,
                  const Machine& machine = built_in_machine());

}  // namespace tutti::tuner
