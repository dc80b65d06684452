// schedule/passes.hpp - rewrites of programs: IR in, IR out, each verified like a builder's output.
#pragma once

#include "schedule/schedule.hpp"

namespace tutti::schedule {

// A recv into scratch whose only reader is one later reduce becomes a message source of that
// reduce: k receives and a fold become one fold over the peers' memory.
Program fuse_folds(Program program);

// For memory that only copies can touch, such as a GPU's: what the caller gave is copied into scratch
// first, everything else happens there, and what becomes of it is copied into the caller's output last.
// Chunk by chunk, so that copies and messages of different chunks, and of pieces of one, go on side by side.
Program stage(Program program);

// The program with a barrier beside it, `barrier` being the same rank's: messages without data, by which no
// rank ends before it has heard of every other one. For collectives whose data tells some ranks of few others.
Program with_barrier(Program program, const Program& barrier);

}  // namespace tutti::schedule
