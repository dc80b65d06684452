// tuner/estimate.hpp - how long a schedule takes on a machine, read off its own programs.
//
// On one host a direct schedule is played on shared memory (tuner/stage.hpp). Everything else goes
// by messages, and is played in virtual time (cost/simulate.hpp).
#pragma once

#include "core/clock.hpp"
#include "cost/site.hpp"
#include "schedule/catalog.hpp"
#include "tuner/choose.hpp"
#include "tuner/machine.hpp"

namespace tutti::tuner {

// The ranks of a call and what messages between them cost on machines like this one. Caches count:
// copies and folds go at the pace that they have in a call of so many bytes.
cost::Site site_of(const Machine& machine, const CallFacts& facts);

// The entry must apply to the call.
Nanoseconds estimate(const schedule::Entry& entry, const CallFacts& facts, int shots,
                     const Machine& machine = built_in_machine());

}  // namespace tutti::tuner
