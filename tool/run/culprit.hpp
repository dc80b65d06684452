// tool/run/culprit.hpp - which of the ranks that failed is at fault.
//
// Deaths are known in the kernel's order, but a rank that was killed may be missed before its death is
// announced: its sockets are closed first, the others hear of that and end, and only then it is a
// zombie. What they noted on the board tells them apart: their last operation failed because somebody
// was lost.
#pragma once

#include <vector>

#include "core/board.hpp"
#include "tool/run/verdict.hpp"

namespace tutti::tool {

struct Suspect {
  std::size_t index = 0;  // of `failures`
  bool sure = false;      // false: it only followed another one, whose end is not known yet
};

// `failures` in the order of their ends, at least one.
Suspect find_culprit(const std::vector<Ending>& failures, const Board& board);

}  // namespace tutti::tool
