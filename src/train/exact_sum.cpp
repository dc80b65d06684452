#include "train/exact_sum.hpp"

#include <bit>
#include <cmath>

#include "core/check.hpp"

namespace tutti::train {
namespace {

using reduce::kLimbBits;
constexpr std::int64_t kLimbMask = 0xffffffff;
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

void ExactSum::add(double x) {
  if (x == 0) return;
  const auto place = reduce::limb_parts(std::bit_cast<std::uint64_t>(std::fabs(x)));
  TUTTI_CHECK(place.limb >= 0 && place.limb + 2 < static_cast<int>(kLimbs));
  for (std::size_t i = 0; i < 3; ++i) {
    const auto part = static_cast<std::int64_t>(place.parts[i]);
    limbs_[static_cast<std::size_t>(place.limb) + i] += x < 0 ? -part : part;
  }
  if (++pending_ < kCarryEvery) return;
  put_carries_away(limbs_);
  pending_ = 0;
}

void ExactSum::add_limbs(const std::array<std::int64_t, kLimbs>& limbs) {
  put_carries_away(limbs_);
  pending_ = 0;
  auto more = limbs;
  put_carries_away(more);
  for (std::size_t i = 0; i < kLimbs; ++i) limbs_[i] += more[i];
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
