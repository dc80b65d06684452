// train/exact_sum.hpp - a sum of f64 numbers that does not depend on their order.
//
// A long fixed-point number in i64 limbs of 32 bits each, with room for carries: adding is exact, so
// ranks may add their parts in any order and grouping and all_reduce the limbs with a plain i64 sum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "reduce/fixed_point.hpp"

namespace tutti::train {

class ExactSum {
 public:
  static constexpr int kLowestBit = reduce::kLowestBit;
  static constexpr std::size_t kLimbs = reduce::kLimbs;

  // x: finite, a sum of products of two f32, below 2^320; of either sign. Carries are put away often
  // enough that no limb overflows, also when 65,536 ranks' limbs are added.
  void add(double x);
  // Another sum's, each below 2^62: carries may be in them still.
  void add_limbs(const std::array<std::int64_t, kLimbs>& limbs);
  // The limbs, each below 2^32 in absolute value: what is all_reduced.
  std::array<std::int64_t, kLimbs> limbs() const;
  static ExactSum from_limbs(const std::array<std::int64_t, kLimbs>& limbs);
  // Rounded once, to nearest. Of a sum that is not negative.
  double value() const;

 private:
  std::array<std::int64_t, kLimbs> limbs_{};
  std::uint32_t pending_ = 0;  // additions since carries were put away
};

}  // namespace tutti::train
