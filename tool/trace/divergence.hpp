// tool/trace/divergence.hpp - who left the common path first, from what to what. Pure.
//
// All ranks of a group call the same collectives in the same order. So the first operation at which
// they differ tells it all: some called something else (mismatch), or some never came (absent).
#pragma once

#include <string>
#include <vector>

#include "tool/trace/flight.hpp"

namespace tutti::tool::trace {

struct Divergence {
  enum class Kind { mismatch, absent, none };
  Kind kind = Kind::none;
  std::vector<int> ranks;  // that diverged
  std::vector<int> others;
  std::string group;
  std::uint64_t sequence = 0;
  std::string from;  // what the others called: "all_reduce"
  std::string to;    // what these called; empty when they never came
  std::string text;  // one paragraph
};
std::string_view to_string(Divergence::Kind kind) noexcept;

Divergence find_divergence(const Flights& flights);

}  // namespace tutti::tool::trace
