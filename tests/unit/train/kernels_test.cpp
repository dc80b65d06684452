// Every kernel of the update, at every vector level, against the plain reference, bit for bit.
#include "train/kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "unit/train/kernel_cases.hpp"

namespace tutti::train {
namespace {

constexpr std::size_t kLongest = 200;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Runs `check(level, count, offset, mix)` for everything that an array may be.
template <class Check>
void for_every_array(Check check) {
  for (const auto level : levels())
    for (std::size_t count = 0; count <= kLongest; ++count)
      for (const std::size_t offset : {0, 1, 3, 7})
        for (const Mix mix : {Mix::tame, Mix::wild}) {
          SCOPED_TRACE(testing::Message() << "level " << static_cast<int>(level) << ", " << count
                                          << " elements at offset " << offset
                                          << (mix == Mix::tame ? ", tame" : ", wild"));
          ASSERT_NO_FATAL_FAILURE(check(level, count, offset, mix));
        }
}

AdamWFactors some_adamw() {
  return {.grad_scale = 0.37F,
          .keep = 0.9999F,
          .beta1 = 0.9F,
          .one_minus_beta1 = 0.1F,
          .beta2 = 0.95F,
          .one_minus_beta2 = 0.05F,
          .step_size = 3e-3F,
          .root_correction2 = 0.31F,
          .epsilon = 1e-8F};
}

struct State {  // what an AdamW update reads and writes
  Array<float> w, g, m, v;
  State(std::size_t count, std::size_t offset, Mix mix, std::mt19937& random)
      : w(numbers(count, mix, random), offset),
        g(numbers(count, mix, random), offset + 1),
        m(numbers(count, mix, random), offset + 2),
        v(squared(numbers(count, mix, random), mix), offset + 3) {}
  static std::vector<float> squared(std::vector<float> all, Mix mix) {
    if (mix == Mix::tame)
      for (auto& x : all) x *= x;
    return all;
  }
  bool same_bits(const State& other) const {
    return w.same_bits(other.w) && g.same_bits(other.g) && m.same_bits(other.m) &&
           v.same_bits(other.v);
  }
  bool guards_stand() const {
    return w.guards_stand() && g.guards_stand() && m.guards_stand() && v.guards_stand();
  }
};

TEST(UpdateKernels, adamw_gives_the_reference_bits_at_every_level_count_and_offset) {
  std::mt19937 random(1);
  for_every_array([&](reduce::SimdLevel level, std::size_t count, std::size_t offset, Mix mix) {
    State expected(count, offset, mix, random);
    State result = expected;
    reference::adamw(some_adamw(), expected.w.data(), expected.g.data(), expected.m.data(),
                     expected.v.data(), count);
    update_kernels(level).adamw(some_adamw(), result.w.data(), result.g.data(), result.m.data(),
                                result.v.data(), count);
    ASSERT_TRUE(result.same_bits(expected));
    ASSERT_TRUE(result.guards_stand());
  });
}

TEST(UpdateKernels, adamw_computes_its_formula) {
  // t = 1, g = 2: m = 0.2, v = 0.004, m̂ = 2, v̂ = 4, so the step is lr · 2 / (2 + ε).
  AdamWFactors factors;
  factors.keep = 1 - 0.01F * 0.1F;
  factors.step_size = 0.01F / 0.1F;
  factors.root_correction2 = std::sqrt(0.001F);
  float w = 5;
  float m = 0;
  float v = 0;
  const float g = 2;
  adamw(factors, &w, &g, &m, &v, 1);
  EXPECT_FLOAT_EQ(m, 0.2F);
  EXPECT_FLOAT_EQ(v, 0.004F);
  EXPECT_FLOAT_EQ(w, 5 * 0.999F - 0.01F);
}

TEST(UpdateKernels, adamw_of_a_shard_gives_the_bits_of_the_whole) {
  std::mt19937 random(2);
  for (const auto level : levels())
    for (int round = 0; round < 200; ++round) {
      const std::size_t count = random() % 500;
      const std::size_t cut = count == 0 ? 0 : random() % count;
      State whole(count, 0, round % 2 == 0 ? Mix::tame : Mix::wild, random);
      State parts = whole;
      const auto& run = update_kernels(level).adamw;
      run(some_adamw(), whole.w.data(), whole.g.data(), whole.m.data(), whole.v.data(), count);
      run(some_adamw(), parts.w.data(), parts.g.data(), parts.m.data(), parts.v.data(), cut);
      run(some_adamw(), parts.w.data() + cut, parts.g.data() + cut, parts.m.data() + cut,
          parts.v.data() + cut, count - cut);
      ASSERT_TRUE(parts.same_bits(whole)) << count << " cut at " << cut;
    }
}

TEST(UpdateKernels, sgd_gives_the_reference_bits_at_every_level_count_and_offset) {
  std::mt19937 random(3);
  for (const bool first : {true, false})
    for_every_array([&](reduce::SimdLevel level, std::size_t count, std::size_t offset, Mix mix) {
      const SgdFactors factors{0.37F, 0.01F, 0.9F, 0.05F, first};
      State expected(count, offset, mix, random);
      State result = expected;
      reference::sgd(factors, expected.w.data(), expected.g.data(), expected.m.data(), count);
      update_kernels(level).sgd(factors, result.w.data(), result.g.data(), result.m.data(), count);
      ASSERT_TRUE(result.same_bits(expected));
      ASSERT_TRUE(result.guards_stand());
    });
}

TEST(UpdateKernels, sgd_computes_its_formula_and_begins_with_the_gradient) {
  float w = 2;
  float b = kNan;  // is not read the first time
  const float g = 3;
  sgd({.grad_scale = 0.5F, .decay = 0.25F, .momentum = 0.5F, .lr = 0.5F, .first = true}, &w, &g, &b,
      1);
  EXPECT_EQ(b, 2.0F);
  EXPECT_EQ(w, 1.0F);
  sgd({.grad_scale = 0.5F, .decay = 0.25F, .momentum = 0.5F, .lr = 0.5F, .first = false}, &w, &g,
      &b, 1);
  EXPECT_EQ(b, 2.75F);  // 2 · 0.5 + 1.5 + 0.25
  EXPECT_EQ(w, -0.375F);
}

TEST(UpdateKernels, sgd_of_a_shard_gives_the_bits_of_the_whole) {
  std::mt19937 random(4);
  const SgdFactors factors{0.37F, 0.01F, 0.9F, 0.05F, false};
  for (const auto level : levels())
    for (std::size_t cut = 0; cut <= 133; ++cut) {
      State whole(133, 1, Mix::wild, random);
      State parts = whole;
      const auto& run = update_kernels(level).sgd;
      run(factors, whole.w.data(), whole.g.data(), whole.m.data(), 133);
      run(factors, parts.w.data(), parts.g.data(), parts.m.data(), cut);
      run(factors, parts.w.data() + cut, parts.g.data() + cut, parts.m.data() + cut, 133 - cut);
      ASSERT_TRUE(parts.same_bits(whole)) << "cut at " << cut;
    }
}

TEST(UpdateKernels, narrow_and_widen_give_the_reference_bits_at_every_level_count_and_offset) {
  std::mt19937 random(5);
  for_every_array([&](reduce::SimdLevel level, std::size_t count, std::size_t offset, Mix mix) {
    const Dtype dtype = random() % 2 == 0 ? Dtype::bf16 : Dtype::f16;
    Array<float> from(numbers(count, mix, random), offset);
    Array<std::uint16_t> expected(count, offset + 1);
    Array<std::uint16_t> result = expected;
    reference::narrow(dtype, from.data(), expected.data(), count);
    update_kernels(level).narrow(dtype, from.data(), result.data(), count);
    ASSERT_TRUE(result.same_bits(expected));
    ASSERT_TRUE(result.guards_stand());

    Array<float> expected_back(count, offset);
    Array<float> back = expected_back;
    reference::widen(dtype, result.data(), expected_back.data(), count);
    update_kernels(level).widen(dtype, result.data(), back.data(), count);
    ASSERT_TRUE(back.same_bits(expected_back));
    ASSERT_TRUE(back.guards_stand());
  });
}

TEST(UpdateKernels, narrow_rounds_to_nearest_even_and_undoes_widen) {
  const std::pair<std::uint32_t, std::uint16_t> cases[] = {
      {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},
      {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x80000000, 0x8000},
      {0x00008000, 0x0000}, {0x00018000, 0x0002}, {0x7fc00000, 0x7fc0}};
  for (const auto& [from, to] : cases) {
    const auto x = std::bit_cast<float>(from);
    std::uint16_t y = 0;
    narrow(Dtype::bf16, &x, &y, 1);
    EXPECT_EQ(y, to) << std::hex << from;
  }
  std::vector<std::uint16_t> all(0x10000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size());
  std::vector<std::uint16_t> back(all.size());
  widen(Dtype::bf16, all.data(), wide.data(), all.size());
  narrow(Dtype::bf16, wide.data(), back.data(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool signalling = (i & 0x7f80) == 0x7f80 && (i & 0x7f) != 0 && (i & 0x40) == 0;
    ASSERT_EQ(back[i], signalling ? i | 0x40 : i) << i;
  }
  widen(Dtype::f16, all.data(), wide.data(), all.size());
  narrow(Dtype::f16, wide.data(), back.data(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool signalling = (i & 0x7c00) == 0x7c00 && (i & 0x3ff) != 0 && (i & 0x200) == 0;
    ASSERT_EQ(back[i], signalling ? i | 0x200 : i) << i;
  }
}

TEST(UpdateKernels, first_not_finite_finds_each_place_at_every_level) {
  std::mt19937 random(6);
  for (const auto level : levels()) {
    const auto& find = update_kernels(level).first_not_finite;
    for (const std::size_t count : {1, 5, 63, 64, 200, 700}) {
      std::vector<float> values = numbers(count, Mix::tame, random);
      values[count / 2] = std::numeric_limits<float>::max();
      ASSERT_EQ(find(values.data(), count), count);
      for (std::size_t i = 0; i < count; ++i)
        for (const float bad : {kInf, -kInf, kNan, std::bit_cast<float>(0xff800001U)}) {
          const float good = values[i];
          const float last = values.back();
          values.back() = kNan;  // a later one does not count
          values[i] = bad;
          ASSERT_EQ(find(values.data(), count), i);
          values.back() = last;
          values[i] = good;
        }
      ASSERT_EQ(find(values.data() + 1, count - 1), count - 1);
    }
    EXPECT_EQ(find(nullptr, 0), 0U);
  }
}

TEST(UpdateKernels, first_not_finite_agrees_with_the_reference_on_anything) {
  std::mt19937 random(7);
  for_every_array([&](reduce::SimdLevel level, std::size_t count, std::size_t offset, Mix mix) {
    Array<float> values(numbers(count, mix, random), offset);
    ASSERT_EQ(update_kernels(level).first_not_finite(values.data(), count),
              reference::first_not_finite(values.data(), count));
  });
}

ExactSum squares_of(const std::vector<float>& values) {
  ExactSum sum;
  add_squares(values.data(), values.size(), sum);
  return sum;
}

TEST(UpdateKernels,
     square_sums_are_exact_at_every_level_count_and_offset_or_say_that_they_are_not) {
  std::mt19937 random(8);
  int exact = 0, inexact = 0;
  for_every_array([&](reduce::SimdLevel level, std::size_t count, std::size_t offset, Mix mix) {
    Array<float> values(numbers(count, mix, random), offset);
    double parts[2];
    const bool fits = update_kernels(level).square_sums(values.data(), count, parts);
    ++(fits ? exact : inexact);
    if (!fits) return;
    ExactSum sum, expected;
    for (const double part : parts) sum.add(part);
    add_squares(values.data(), count, expected);
    ASSERT_EQ(sum.limbs(), expected.limbs());
    ASSERT_TRUE(values.guards_stand());
  });
  EXPECT_GT(exact, 100);
  EXPECT_GT(inexact, 100) << "any bit pattern: most do not fit";
}

// As many as are summed at once, of the least and largest size, and with sizes as far apart as is promised.
TEST(UpdateKernels, square_sums_hold_the_most_and_the_largest_that_they_are_given) {
  std::mt19937 random(9);
  for (const auto level : levels())
    for (const float largest : {std::numeric_limits<float>::max(), 1.0F, 0x1p-120F,
                                std::numeric_limits<float>::denorm_min()}) {
      std::vector<float> values(kMostSquares, largest);
      double parts[2];
      for (const bool apart : {false, true}) {
        for (std::size_t i = 1; apart && i < values.size(); ++i)
          values[i] = std::ldexp(std::nextafter(largest, 0.0F), -static_cast<int>(random() % 19));
        ASSERT_TRUE(update_kernels(level).square_sums(values.data(), values.size(), parts));
        ExactSum sum;
        for (const double part : parts) sum.add(part);
        ASSERT_EQ(sum.limbs(), squares_of(values).limbs()) << largest;
      }
      values[7] = kInf;
      EXPECT_FALSE(update_kernels(level).square_sums(values.data(), values.size(), parts));
      values[7] = kNan;
      EXPECT_FALSE(update_kernels(level).square_sums(values.data(), values.size(), parts));
    }
}

TEST(UpdateKernels, squares_of_a_few_numbers_are_right_and_those_of_no_number_are_left_out) {
  EXPECT_EQ(squares_of({3, -4, 0, kInf, kNan}).value(), 25);
  EXPECT_EQ(squares_of(std::vector<float>(64, std::numeric_limits<float>::denorm_min())).value(),
            std::ldexp(64.0, -298));
  EXPECT_EQ(squares_of({std::numeric_limits<float>::max()}).value(),
            std::pow(double{std::numeric_limits<float>::max()}, 2));
}

}  // namespace
}  // namespace tutti::train
