// tuner/estimate.hpp - how long a schedule takes under the cost model, read off its own programs.
//
//   step   0    1    2    3          Each rank's ops are added up by step; a step lasts as long as
//   rank 0 ███  ██   █    ██         its slowest rank, and the steps follow one another.
//   rank 1 ██   ███  ██   █
//   time   ███  ███  ██   ██   = the estimate
//
// Messages in and out of a rank overlap, its folds and copies do not. Ranks of one host share its
// wire. Pipelining over segments is not in the picture (a simulator's task), so long chains look a
// little worse than they are.
#pragma once

#include "core/clock.hpp"
#include "schedule/catalog.hpp"
#include "tuner/choose.hpp"

namespace tutti::tuner {

// Walks every rank's program in small groups, and in large ones some that stand for the others: the
// first rank of a host and three of the rest, on three hosts. The entry must apply to the
// situation.
Nanoseconds estimate(const schedule::Entry& entry, const Situation& situation, int shots);

// What a builder is asked for; root 0.
schedule::Request request_of(const Situation& situation, int rank, int shots);

}  // namespace tutti::tuner
