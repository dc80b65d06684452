// schedule/passes.hpp - rewrites of programs: IR in, IR out, each verified like a builder's output.
#pragma once

#include "schedule/schedule.hpp"

namespace tutti::schedule {

// A recv into scratch whose only reader is one later reduce becomes a message source of that
// reduce: k receives and a fold become one fold over the peers' memory.
Program fuse_folds(Program program);

}  // namespace tutti::schedule
