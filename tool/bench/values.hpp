// tool/bench/values.hpp - what ranks put into their buffers, so that every result is known exactly.
//
// Values are small whole numbers that every type holds exactly, chosen so that no partial fold
// needs rounding whatever its order. A rank's values repeat after kPeriod elements (a prime, so
// that a part that lands in the wrong place is seen); a period is encoded once, and filling and
// checking go by memcpy and memcmp.
#pragma once

#include <cstddef>
#include <vector>

#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::tool {

using Period = std::vector<std::byte>;

class Values {
 public:
  static constexpr std::size_t kPeriod = 1021;
  static constexpr double kScalar = 2;  // of premul_sum

  // What cannot be checked exactly is Code::invalid_argument that says why.
  static Status check(Collective collective, Dtype dtype, ReduceOp op, int ranks);

  Values(Dtype dtype, ReduceOp op, int ranks) : dtype_(dtype), op_(op), ranks_(ranks) {}

  // What `rank` contributes.
  Period of(int rank) const;
  // The fold over ranks 0 … last.
  Period folded(int last) const;

  // Elements first, first + 1, … of the endless repetition.
  void fill(void* to, std::size_t first, std::size_t count, const Period& period) const;
  // How many of those elements are not there.
  std::size_t count_wrong(const void* at, std::size_t first, std::size_t count,
                          const Period& period) const;

 private:
  long value(int rank, std::size_t index) const;
  long fold_at(int last, std::size_t index) const;

  Dtype dtype_;
  ReduceOp op_;
  int ranks_;
};

// A whole number ≥ 0 in the type's bytes; exact up to exact_limit.
void encode(long value, Dtype dtype, std::byte* to);
// The largest n such that 0 … n are all exact.
long exact_limit(Dtype dtype);

}  // namespace tutti::tool
