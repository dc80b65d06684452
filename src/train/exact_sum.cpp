#include "train/exact_sum.hpp"

#include <bit>
#include <cmath>

#include "core/check.hpp"

namespace tutti::train {
namespace {

constexpr int kLimbBits = 32;
constexpr std::int64_t kLimbMask = 0xffffffff;
constexpr int kMantissaBits = 52;  // of an f64, without the leading one
constexpr int kExponentBias = 1023;
// An addition makes a limb grow by less than 2^32, so this many make it at most 2^62.
constexpr std::uint32_t kCarryEvery = 1U << 30;

// Leaves every limb in [0, 2^32); the last keeps what does not fit.
void put_carries_away(std::array<std::int64_t, ExactSum::kLimbs>& limbs) {
  for (std::size_t i = 0; i + 1 < limbs.size(); ++i) {
    limbs[i + 1] += limbs[i] >> kLimbBits;
    limbs[i] &= kLimbMask;
  }
}

}  // namespace

// The mantissa falls into three limbs at most:  …|limb 2|limb 1|limb 0|
//                                                  [ 53 bits ]
void ExactSum::add(double x) {
  if (x == 0) return;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  // A sign, a NaN or an infinity makes this too large; what is too small makes it negative.
  const int lowest = static_cast<int>(bits >> kMantissaBits) - kExponentBias - kMantissaBits;
  const int place = lowest - kLowestBit;
  TUTTI_CHECK(place >= 0 && place / kLimbBits + 2 < static_cast<int>(kLimbs));
  const std::uint64_t mantissa = (bits & ((1ULL << kMantissaBits) - 1)) | 1ULL << kMantissaBits;
  const auto limb = static_cast<std::size_t>(place / kLimbBits);
  const int shift = place % kLimbBits;
  const std::uint64_t low = mantissa << shift;
  const std::uint64_t high = shift == 0 ? 0 : mantissa >> (64 - shift);
  limbs_[limb] += static_cast<std::int64_t>(low & kLimbMask);
  limbs_[limb + 1] += static_cast<std::int64_t>(low >> kLimbBits);
  limbs_[limb + 2] += static_cast<std::int64_t>(high);
  if (++pending_ < kCarryEvery) return;
  put_carries_away(limbs_);
  pending_ = 0;
}

std::array<std::int64_t, ExactSum::kLimbs> ExactSum::limbs() const {
  auto limbs = limbs_;
  put_carries_away(limbs);
  return limbs;
}

ExactSum ExactSum::from_limbs(const std::array<std::int64_t, kLimbs>& limbs) {
  ExactSum sum;
  sum.limbs_ = limbs;
  put_carries_away(sum.limbs_);
  return sum;
}

// The 64 bits from the highest one on, the last of them also standing for all below it: their
// conversion to f64 is then the only rounding.
double ExactSum::value() const {
  const auto limbs = this->limbs();
  TUTTI_CHECK(limbs.back() >= 0 && limbs.back() <= kLimbMask);
  int top = kLimbs - 1;
  while (top >= 0 && limbs[static_cast<std::size_t>(top)] == 0) --top;
  if (top < 0) return 0;
  const auto limb = [&](int i) {
    return i < 0 ? std::uint64_t{0}
                 : static_cast<std::uint64_t>(limbs[static_cast<std::size_t>(i)]);
  };
  const int width = static_cast<int>(std::bit_width(limb(top)));  // 1…32
  std::uint64_t window =
      (limb(top) << kLimbBits | limb(top - 1)) << (kLimbBits - width) | limb(top - 2) >> width;
  std::uint64_t below = limb(top - 2) & ((1ULL << width) - 1);
  for (int i = top - 3; i >= 0; --i) below |= limb(i);
  if (below != 0) window |= 1;
  return std::ldexp(static_cast<double>(window), kLimbBits * (top - 2) + width + kLowestBit);
}

}  // namespace tutti::train
