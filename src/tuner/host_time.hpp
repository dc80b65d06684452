// tuner/host_time.hpp - what a call costs whose ranks share a host and meet in its memory.
//
// The host forms of the call (schedule/host/forms.hpp) are played phase by phase: copies and folds
// on cores, meetings between them, long chunks piece by piece. Which form runs follows from the
// sizes by the same rules that the engine goes by (schedule/host/limits.hpp).
#pragma once

#include <optional>

#include "schedule/entry.hpp"
#include "tuner/call_facts.hpp"
#include "tuner/machine.hpp"

namespace tutti::tuner {

// Empty where the call goes by messages: ranks on several hosts or too many of them, or an algorithm
// whose messages cannot be read as meetings.
std::optional<double> host_seconds(const schedule::Entry& entry, const CallFacts& facts, int shots,
                                   const Machine& machine);

}  // namespace tutti::tuner
