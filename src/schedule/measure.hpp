// schedule/measure.hpp - what a schedule costs, counted: the coefficients of a cost formula.
//
//   T = chain·α + messages·o + bytes·S·β + folded·S·γ
//
// α is a message's latency, o what a message takes from the core that handles it, β what a byte
// takes on its way, γ what a byte takes to be folded, S the size of the call (the whole array, as
// nccl-tests count it). Bytes and folds are counted twice, along the longest chain of messages and
// at the busiest rank, and the larger one counts: a chain has to be waited for, and so has a rank.
#pragma once

#include <cstdint>
#include <span>

#include "schedule/schedule.hpp"

namespace tutti::schedule {

struct Measure {
  std::uint32_t chain = 0;     // messages on the longest chain
  std::uint32_t messages = 0;  // that the busiest rank sends, or takes
  std::uint64_t moved = 0;     // chunks
  std::uint64_t folded = 0;    // chunks
  std::uint64_t parts = 0;     // chunks in S; 0: the collective moves no bytes

  double bytes_share() const { return share(moved); }
  double folded_share() const { return share(folded); }

 private:
  double share(std::uint64_t chunks) const {
    return parts == 0 ? 0 : static_cast<double>(chunks) / static_cast<double>(parts);
  }
};

// Code::internal when the programs do not fit together. They count as equally large chunks.
Result<Measure> measure(std::span<const Program> programs);

}  // namespace tutti::schedule
