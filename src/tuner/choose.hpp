// tuner/choose.hpp - which schedule for this call. Pure: every rank gets the same answer.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "tuner/call_facts.hpp"
#include "tuner/estimate.hpp"
#include "tuner/machine.hpp"
#include "tutti/types.hpp"

namespace tutti::tuner {

struct Choice {
  Algorithm algorithm = Algorithm::direct;
  int shots = 2;
  Nanoseconds predicted{0};  // or kUnknownTime
};

// One row per candidate; the cheapest first. Never empty. Equal machines and facts give equal
// rows, on any rank.
std::vector<Choice> candidates(const CallFacts& facts, const Machine& machine = built_in_machine());
Choice choose(const CallFacts& facts, const Machine& machine = built_in_machine());
// The parameters for a forced algorithm. Code::invalid_argument when it cannot serve the call
// (not for this collective or size, cannot fold in rank order, cannot do uneven parts): the message
// lists those that can.
Result<Choice> choose_forced(const CallFacts& facts, Algorithm algorithm,
                             const Machine& machine = built_in_machine());

// For people: what was chosen from, one line per candidate, the first one marked.
std::string describe(const CallFacts& facts, std::span<const Choice> choices);

}  // namespace tutti::tuner
