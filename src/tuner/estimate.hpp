// tuner/estimate.hpp - how long a schedule takes on a machine, read off its own programs.
//
// Both kinds are played in virtual time: host forms on shared memory (tuner/host_time.hpp), and what
// goes by messages (cost/simulate.hpp).
#pragma once

#include "core/clock.hpp"
#include "cost/site.hpp"
#include "schedule/entry.hpp"
#include "tuner/call_facts.hpp"
#include "tuner/machine.hpp"

namespace tutti::tuner {

// The ranks of a call and what messages between them cost on machines like this one. Caches count:
// copies and folds go at the pace that they have in a call of so many bytes.
cost::Site site_of(const Machine& machine, const CallFacts& facts);

// Of a schedule that is too large to be played: later than any that was.
inline constexpr Nanoseconds kUnknownTime = Nanoseconds::max();

// The entry must apply to the call.
Nanoseconds estimate(const schedule::Entry& entry, const CallFacts& facts, int shots,
                     const Machine& machine = built_in_machine());

}  // namespace tutti::tuner
