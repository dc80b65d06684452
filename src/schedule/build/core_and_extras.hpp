// schedule/build/core_and_extras.hpp - how algorithms for powers of two serve any number of ranks.
//
// The *core* is the first 2^k ranks. Each rank beyond, an *extra*, hands its contribution to the
// core rank 2^k below it and gets the result from there:
//
//      n = 6:   core 0 1 2 3, extras 4 -> 0 and 5 -> 1
#pragma once

#include <bit>

#include "schedule/build/draft.hpp"

namespace tutti::schedule::builders {

struct Core {
  int n, rank;  // rank: or place, when the root stands at 0
  int size;     // 2^k ≤ n
  Core(int n_, int rank_)
      : n(n_), rank(rank_), size(static_cast<int>(std::bit_floor(static_cast<unsigned>(n_)))) {}

  bool is_extra() const { return rank >= size; }
  bool has_extra() const { return has_extra(rank); }
  bool has_extra(int core_rank) const { return core_rank + size < n; }
  int other() const { return is_extra() ? rank - size : rank + size; }
  Step rounds() const { return static_cast<Step>(std::countr_zero(static_cast<unsigned>(size))); }
};

// Whether there are no extras.
inline bool makes_cube(const Request& request) {
  return std::has_single_bit(static_cast<unsigned>(request.size));
}

}  // namespace tutti::schedule::builders
