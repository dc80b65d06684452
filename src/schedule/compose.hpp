// schedule/compose.hpp - programs as parts of larger ones.
//
// A part is the program of a smaller group or of another collective. It is put into the whole by
// saying who its ranks are, when it begins, and where its chunks lie:
//
//      part: reduce_scatter of 2 ranks        whole: all_reduce of 4 ranks, cut 4, rank 3
//      rank 0, rank 1                   ->    ranks 2 and 3
//      step k                           ->    first_step + k
//      input[c]                         ->    input[2c .. 2c+1]      (scale 2)
//      output[0]                        ->    output[2 .. 3]
#pragma once

#include <cstdint>
#include <span>

#include "schedule/schedule.hpp"

namespace tutti::schedule {

struct Placement {
  std::span<const int> ranks;  // the part's rank i is ranks[i] of the whole
  std::uint32_t first_step = 0;
  Region input{}, output{};        // where the part's sides begin; counts do not matter
  std::uint32_t scale = 1;         // chunks of the whole per chunk of the part
  std::uint32_t stride = 0;        // from one chunk of the part to its next; 0: as many as `scale`
  std::uint64_t first_extent = 0;  // extent of the whole at which the part's extent 0 begins
  bool raw = true;                 // the part's inputs are raw inputs of the whole
  bool finish = true;              // the part's results are results of the whole
};

// Appends the part's ops to the whole; its scratch comes behind the whole's. With a stride of its own the
// part's regions are of one chunk each.
void append(Program& whole, const Program& part, const Placement& placement);

// The program of the rank of that place in `walk`, told of ranks by their numbers: peers, and the parts that
// belong to them. Regions of parts are of one chunk each.
Program renamed(Program program, std::span<const int> walk);

}  // namespace tutti::schedule
