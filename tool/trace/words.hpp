// tool/trace/words.hpp - what the questions of `tutti trace` say alike.
#pragma once

#include <string>
#include <vector>

#include "trace/run.hpp"

namespace tutti::tool::trace {

double seconds_of(const tutti::trace::TracedRun& run);
// What the reader should know of the traces themselves: ranks that are missing or cut off, clocks
// that may be wrong.
std::vector<std::string> remarks_on(const tutti::trace::TracedRun& run);

// "ranks 0, 1 and 3", "rank 2".
std::string rank_words(const std::vector<int>& ranks);
// "1.24 ms", "830 ns".
std::string time_words(double ns);

}  // namespace tutti::tool::trace
