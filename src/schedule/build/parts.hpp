// schedule/build/parts.hpp - pieces of one algorithm that others are made of.
#pragma once

#include <algorithm>
#include <functional>

#include "schedule/build/core_and_extras.hpp"
#include "schedule/build/draft.hpp"

namespace tutti::schedule::builders {

// Dissemination among n places, of which this rank has `place`: when `token` has been written last,
// all of them have begun. ⌈lg n⌉ steps from `base`.
void disseminate(Draft& draft, int n, int place, const std::function<int(int)>& rank_at,
                 Region token, Step base);

// All core ranks exchange the blocks of `output` that they hold, their extras' blocks included, at
// distances 1, 2, 4, …; two steps a round from `base`.
void double_blocks(Draft& draft, const Core& core, Step base);

// Blocks `from` … `from + count - 1` of n that lie on a circle, as runs that lie side by side in
// memory: two where they pass n - 1. Calls visit(run, first block, blocks, offset in the whole).
template <class Visit>
void each_run(int n, int from, int count, Visit visit) {
  const int first = wrap(from, n);
  const int head = std::min(count, n - first);
  visit(Step{0}, static_cast<Chunk>(first), static_cast<Chunk>(head), Chunk{0});
  if (head < count) {
    visit(Step{1}, Chunk{0}, static_cast<Chunk>(count - head), static_cast<Chunk>(head));
  }
}

}  // namespace tutti::schedule::builders
