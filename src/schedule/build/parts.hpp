// schedule/build/parts.hpp - pieces of one algorithm that others are made of.
#pragma once

#include <span>

#include "schedule/build/core_and_extras.hpp"
#include "schedule/build/draft.hpp"

namespace tutti::schedule::builders {

// Dissemination: when `token` has been written last, every one of `ranks` has begun. This rank is
// ranks[place]; ⌈lg n⌉ steps from `base`.
void disseminate(Draft& draft, std::span<const int> ranks, int place, Region token, Step base);

// All core ranks exchange the blocks of `output` that they hold, their extras' blocks included, at
// distances 1, 2, 4, …; two steps a round from `base`.
void double_blocks(Draft& draft, const Core& core, Step base);

}  // namespace tutti::schedule::builders
