// schedule/passes.hpp - rewrites of programs: IR in, IR out, each verified like a builder's output.
#pragma once

#include "schedule/schedule.hpp"

namespace tutti::schedule {

// A recv into scratch whose only reader is one later reduce becomes a message source of that
// reduce: k receives and a fold become one fold over the peers' memory.
Program fuse_folds(Program program);

// A finished reduce followed by sends of its result becomes the reduce and puts into the peers'
// output, where that is safe: the peer's only use of that chunk before its recv is a send to this
// rank. Needs to know only this rank's program and the collective (peers' programs are alike).
Program fuse_puts(Program program);

}  // namespace tutti::schedule
