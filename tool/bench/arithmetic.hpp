// tool/bench/arithmetic.hpp - sizes, bandwidths and means: pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "plan/collective_cost.hpp"
#include "tutti/shape.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::tool {

// GB/s, GB = 1e9 bytes.
double algbw_gbs(std::size_t bytes, double time_us);

// first, first × factor, … up to last; Code::invalid_argument for a walk that would not end.
Result<std::vector<std::size_t>> walk_sizes(std::size_t first, std::size_t last, double factor);

// The nearest array that can be measured: whole elements, the same number of them per rank where
// the array is cut, at least one.
std::size_t fitting_bytes(Collective collective, std::size_t bytes, Dtype dtype, int ranks);

// Of values above zero; 0 for none.
double geometric_mean(std::span<const double> values);

// "64 KiB", "4 B": exact where the size is a whole number of units.
std::string size_words(std::size_t bytes);

}  // namespace tutti::tool
