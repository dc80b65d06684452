// reduce/fixed_point.hpp - where an f64 lies in a long fixed-point number.
//
// The number has kLimbs limbs of 32 bits each, in words of 64: the rest is room for carries, so that
// up to 2^30 numbers may be added before carries are put away, in any order and by any number of
// threads. train/exact_sum.hpp adds so on the processor, cuda/kernels/update.hpp on the GPU.
#pragma once

#include <cstdint>

#include "reduce/half.hpp"

namespace tutti::reduce {

// Sums of 64 squares of f32 lie between 2^-298 and 2^262; bits below 2^-384 do not occur in them.
inline constexpr int kLowestBit = -384;
inline constexpr int kLimbs = 24;  // up to 2^384
inline constexpr int kLimbBits = 32;

// The mantissa falls into three limbs at most:  …|limb 2|limb 1|limb 0|
//                                                  [ 53 bits ]
struct LimbParts {
  int limb;  // of the first part. Below 0, or above kLimbs − 3: the number does not fit
  std::uint64_t parts[3];
};

// Of the bits of a number that is not 0. A sign, a NaN or an infinity makes it too large to fit; what is
// too small has a negative limb.
TUTTI_INLINE LimbParts limb_parts(std::uint64_t bits) {
  constexpr int kMantissaBits = 52;  // without the leading one
  constexpr int kExponentBias = 1023;
  const int lowest = static_cast<int>(bits >> kMantissaBits) - kExponentBias - kMantissaBits;
  const int place = lowest - kLowestBit;
  if (place < 0) return {-1, {0, 0, 0}};
  const std::uint64_t one = 1;
  const std::uint64_t mantissa = (bits & ((one << kMantissaBits) - 1)) | one << kMantissaBits;
  const int shift = place % kLimbBits;
  const std::uint64_t low = mantissa << shift;
  const std::uint64_t high = shift == 0 ? 0 : mantissa >> (64 - shift);
  return {place / kLimbBits, {low & 0xffffffff, low >> kLimbBits, high}};
}

}  // namespace tutti::reduce
