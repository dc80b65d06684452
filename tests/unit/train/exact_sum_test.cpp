// The sum that does not depend on order: against wider arithmetic, and against itself in any order.
#include "train/exact_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tutti::train {
namespace {

using Limbs = std::array<std::int64_t, ExactSum::kLimbs>;

ExactSum sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double x : values) sum.add(x);
  return sum;
}

// Squares as gradients have them, from subnormal to the largest f32.
std::vector<double> squares(std::size_t count, int lowest_exponent, int highest_exponent,
                            std::mt19937& random) {
  std::uniform_real_distribution<double> mantissa(1, 2);
  std::vector<double> all(count);
  for (auto& x : all) {
    const int exponents = highest_exponent - lowest_exponent + 1;
    const int exponent = lowest_exponent + static_cast<int>(random() % unsigned(exponents));
    const double root = static_cast<float>(std::ldexp(mantissa(random), exponent));
    x = root * root;
  }
  return all;
}

TEST(ExactSum, nothing_is_zero) {
  EXPECT_EQ(ExactSum().value(), 0);
  EXPECT_EQ(ExactSum().limbs(), Limbs{});
  EXPECT_EQ(sum_of({0.0, -0.0}).value(), 0);
}

TEST(ExactSum, one_number_is_itself_at_every_exponent) {
  std::mt19937_64 random(1);
  for (int exponent = -298; exponent <= 262; ++exponent)
    for (int i = 0; i < 20; ++i) {
      // No bit below 2^-298: that is where squares of f32 end.
      const int bits = std::min(52, exponent + 298);
      const auto fraction = static_cast<double>(random() % (1ULL << bits));
      const double x = std::ldexp(1 + std::ldexp(fraction, -bits), exponent);
      ASSERT_EQ(sum_of({x}).value(), x) << x;
    }
}

TEST(ExactSum, any_order_and_grouping_gives_the_same_bits) {
  std::mt19937 random(2);
  auto values = squares(3000, -149, 127, random);
  const Limbs expected = sum_of(values).limbs();
  const double expected_value = sum_of(values).value();
  for (int round = 0; round < 50; ++round) {
    std::shuffle(values.begin(), values.end(), random);
    ASSERT_EQ(sum_of(values).limbs(), expected);
    // Ranks that each add a part, and an all_reduce of their limbs.
    std::vector<ExactSum> ranks(1 + random() % 100);
    for (const double x : values) ranks[random() % ranks.size()].add(x);
    Limbs reduced{};
    for (const auto& rank : ranks)
      for (std::size_t i = 0; i < reduced.size(); ++i) reduced[i] += rank.limbs()[i];
    ASSERT_EQ(ExactSum::from_limbs(reduced).limbs(), expected);
    ASSERT_EQ(ExactSum::from_limbs(reduced).value(), expected_value);
    ExactSum together;
    for (const auto& rank : ranks) together.add_limbs(rank.limbs());
    ASSERT_EQ(together.limbs(), expected);
  }
}

#if defined(__SIZEOF_FLOAT128__)
TEST(ExactSum, agrees_with_a_sum_in_113_bits_that_is_rounded_once) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    // 53 bits each, exponents within 2 · 20, at most 64 of them: less than 113 bits, so exact.
    const auto base = static_cast<int>(random() % 200) - 110;
    const auto values = squares(1 + random() % 64, base, base + 20, random);
    __float128 wide = 0;
    for (const double x : values) wide += x;
    ASSERT_EQ(sum_of(values).value(), static_cast<double>(wide));
  }
}
#endif

TEST(ExactSum, rounds_once_to_nearest_with_ties_to_even) {
  const double one = 1;
  const double half_ulp = std::ldexp(1.0, -53);
  const double dust = std::ldexp(1.0, -298);
  EXPECT_EQ(sum_of({one, half_ulp}).value(), 1);  // tie: to even
  EXPECT_EQ(sum_of({one, half_ulp, dust}).value(), std::nextafter(1.0, 2.0));
  EXPECT_EQ(sum_of({dust, half_ulp, one}).value(), std::nextafter(1.0, 2.0));
  EXPECT_EQ(sum_of({std::nextafter(1.0, 2.0), half_ulp}).value(), 1 + std::ldexp(1.0, -51));
  // Rounding up carries through all bits.
  EXPECT_EQ(sum_of({std::nextafter(2.0, 1.0), half_ulp, half_ulp}).value(), 2);
  EXPECT_EQ(sum_of({std::nextafter(2.0, 1.0), half_ulp}).value(), 2);
}

TEST(ExactSum, a_large_number_does_not_swallow_small_ones) {
  const double huge = 64 * std::pow(double{std::numeric_limits<float>::max()}, 2);
  ExactSum sum;
  sum.add(huge);
  for (int i = 0; i < 1000; ++i) sum.add(std::ldexp(1.0, -298));
  Limbs limbs = sum.limbs();
  Limbs only_huge = sum_of({huge}).limbs();
  for (std::size_t i = 0; i < limbs.size(); ++i) limbs[i] -= only_huge[i];
  EXPECT_EQ(ExactSum::from_limbs(limbs).value(), 1000 * std::ldexp(1.0, -298));
}

TEST(ExactSum, the_limbs_of_65536_ranks_fit_and_carry) {
  // Every limb as full as it may be.
  Limbs full;
  full.fill(0xffffffff);
  full[ExactSum::kLimbs - 1] = 0;
  full[ExactSum::kLimbs - 2] = 0;
  Limbs reduced{};
  for (int rank = 0; rank < 65'536; ++rank)
    for (std::size_t i = 0; i < reduced.size(); ++i) reduced[i] += full[i];
  // 65,536 · (2^320 − 2^-384), which rounds to 2^336.
  EXPECT_EQ(ExactSum::from_limbs(reduced).value(), std::ldexp(1.0, 336));
  for (const std::int64_t limb : ExactSum::from_limbs(reduced).limbs()) {
    EXPECT_GE(limb, 0);
    EXPECT_LE(limb, 0xffffffff);
  }
}

TEST(ExactSum, many_equal_numbers_add_up_exactly) {
  ExactSum sum;
  const double x = std::nextafter(1.0, 2.0);  // an f64 sum of these would round at every step
  constexpr int kTimes = 3'000'000;
  for (int i = 0; i < kTimes; ++i) sum.add(x);
  const double expected = kTimes + std::ldexp(double{kTimes}, -52);
  EXPECT_EQ(sum.value(), expected);
}

TEST(ExactSum, what_is_negative_is_taken_off_again) {
  EXPECT_EQ(sum_of({1, std::ldexp(1.0, 200), -1, std::ldexp(-1.0, 200)}).limbs(), Limbs{});
  EXPECT_EQ(sum_of({-0.25, std::ldexp(1.0, 64)}).limbs(),
            sum_of({std::ldexp(1.0, 64) - 2048, 2047.75}).limbs());
}

TEST(ExactSumDeathTest, what_is_not_finite_or_out_of_range_is_a_bug) {
  ExactSum sum;
  EXPECT_DEATH(sum.add(std::numeric_limits<double>::quiet_NaN()), "place");
  EXPECT_DEATH(sum.add(std::numeric_limits<double>::infinity()), "place");
  EXPECT_DEATH(sum.add(std::numeric_limits<double>::min()), "place");
}

}  // namespace
}  // namespace tutti::train
