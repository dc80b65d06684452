// tuner/estimate.hpp - how long a schedule takes on a machine, read off its own programs.
//
// On one host a direct schedule is played on shared memory (tuner/stage.hpp); everything else goes
// by messages (tuner/messages.hpp), in segments whose size is chosen here too. Small groups are
// walked whole, in large ones some ranks stand for the others.
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
