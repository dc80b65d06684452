// The k-way fold: every op on every dtype, at every vector level, against the plain reference.
#include "reduce/fold.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "unit/reduce/fold_cases.hpp"

namespace tutti::reduce {
namespace {

class FoldEveryPair : public testing::TestWithParam<Case> {};
class FoldOverOperands : public FoldEveryPair {};  // whose result fits where an operand lies

TEST_P(FoldEveryPair, gives_the_reference_bits_at_every_level_and_length) {
  std::mt19937 random(11);
  for (const int k : {1, 2, 3, 5, 8, 17})
    for (const std::size_t count : {0, 1, 2, 7, 15, 31, 64, 97, 127, 256, 257, 1009})
      for (const bool finish : {false, true}) {
        const Folding folding = folding_of(GetParam(), finish, k);
        const Inputs inputs(GetParam(), k, count, random);
        Bytes expected(count * folding.result_bytes() + 1, 0xab);
        fold_reference(folding, expected.data(), inputs.operands, count);
        EXPECT_EQ(expected.back(), 0xab);
        for (const SimdLevel level : levels()) {
          Bytes result(expected.size() + 1, 0xab);
          fold_at(level, folding, result.data() + 1, inputs.operands, count);
          ASSERT_TRUE(std::equal(expected.begin(), expected.end(), result.begin() + 1))
              << describe(folding, inputs.operands.size(), count) << ", level "
              << static_cast<int>(level);
          ASSERT_EQ(result.front(), 0xab);
        }
      }
}

TEST_P(FoldOverOperands, may_write_over_any_of_its_operands) {
  std::mt19937 random(12);
  constexpr std::size_t kCount = 1031;
  for (const int k : {1, 2, 3, 8})
    for (int target = 0; target < k; ++target) {
      const Folding folding = folding_of(GetParam(), true, k);
      Inputs inputs(GetParam(), k, kCount, random);
      Bytes expected(kCount * size_of(folding.dtype));
      fold_reference(folding, expected.data(), inputs.operands, kCount);
      const Bytes original = inputs.storage[target];
      for (const SimdLevel level : levels()) {
        std::copy(original.begin(), original.end(), inputs.storage[target].begin());
        void* dst = const_cast<void*>(inputs.operands[target].data);
        fold_at(level, folding, dst, inputs.operands, kCount);
        ASSERT_EQ(std::memcmp(dst, expected.data(), expected.size()), 0)
            << describe(folding, k, kCount) << ", into operand " << target;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Fold, FoldEveryPair, testing::ValuesIn(shaped_cases()),
                         [](const auto& test) { return name_of(test.param); });
INSTANTIATE_TEST_SUITE_P(Fold, FoldOverOperands, testing::ValuesIn(sensible_cases()),
                         [](const auto& test) { return name_of(test.param); });

TEST(Fold, the_same_operand_may_stand_in_several_places) {
  std::vector<float> x(100, 1.5F);
  const Operand twice[] = {{x.data(), true}, {x.data(), true}};
  fold({Dtype::f32, ReduceOp::sum, false, 2}, x.data(), twice, x.size());
  EXPECT_EQ(x, std::vector<float>(100, 3.0F));
}

TEST(Fold, the_best_level_is_one_that_runs_here) { EXPECT_TRUE(can_run(best_level())); }

TEST(Fold, a_single_operand_is_copied_bit_by_bit_signalling_nans_included) {
  const std::vector<std::uint32_t> x(33, 0xffa00001U);
  std::vector<std::uint32_t> y(33);
  const Operand one[] = {{x.data(), true}};
  fold({Dtype::f32, ReduceOp::sum, true, 1}, y.data(), one, x.size());
  EXPECT_EQ(x, y);
}

TEST(Fold, a_single_operand_that_is_widened_is_the_same_number) {
  const std::vector<std::uint16_t> x{0x3f80, 0xc000, 0x0001, 0x7f80, 0x7f81};  // bf16
  std::vector<std::uint32_t> y(x.size());
  const Operand one[] = {{x.data(), true}};
  fold({Dtype::bf16, ReduceOp::sum, true, 1, true}, y.data(), one, x.size());
  EXPECT_EQ(
      y, (std::vector<std::uint32_t>{0x3f800000, 0xc0000000, 0x00010000, 0x7f800000, 0x7fc00000}));
}

TEST(Fold, what_is_not_rounded_keeps_what_the_narrow_type_would_lose) {
  const std::uint16_t x[] = {0x3f80, 0x3b80};  // 1 and 1/256, which bf16 cannot add up
  float sum = 0;
  std::uint16_t rounded = 0;
  const Operand both[] = {{&x[0], true}, {&x[1], true}};
  fold({Dtype::bf16, ReduceOp::sum, true, 2, true}, &sum, both, 1);
  fold({Dtype::bf16, ReduceOp::sum, true, 2}, &rounded, both, 1);
  EXPECT_EQ(sum, 1.00390625F);
  EXPECT_EQ(rounded, 0x3f80);
}

// ((a b) (c d)) e, where from the left (((a b) c) d) e would be.
TEST(Fold, a_balanced_fold_puts_the_largest_power_of_two_together_first) {
  const float x[] = {1e8F, 1, -1e8F, 1, 4};
  float from_left = 0;
  float as_tree = 0;
  std::vector<Operand> operands;
  for (const float& each : x) operands.push_back({&each, true});
  fold({Dtype::f32, ReduceOp::sum, true, 5}, &from_left, operands, 1);
  fold({Dtype::f32, ReduceOp::sum, true, 5, false, true}, &as_tree, operands, 1);
  EXPECT_EQ(from_left, 5);
  EXPECT_EQ(as_tree, 4);

  const UserReduction twice{"twice_and_one",
                            [](const void* in, void* inout, std::size_t, Dtype, void*) {
                              auto& right = *static_cast<std::int64_t*>(inout);
                              right += 2 * *static_cast<const std::int64_t*>(in);
                            },
                            nullptr, false};
  const std::int64_t one = 1;
  std::int64_t result = 0;
  const std::vector<Operand> ones(5, Operand{&one, true});
  fold({Dtype::i64, Reduction::by(twice), true, 5, false, true}, &result, ones, 1);
  EXPECT_EQ(result, 2 * (2 * 3 + 3) + 1);
}

TEST(Fold, user_functions_see_bounded_blocks_in_order_with_the_lower_rank_as_in) {
  struct Seen {
    std::size_t largest = 0;
  } seen;
  const UserReduction concat{
      "digits",
      [](const void* in, void* inout, std::size_t count, Dtype, void* context) {
        auto& largest = static_cast<Seen*>(context)->largest;
        largest = std::max(largest, count);
        for (std::size_t i = 0; i < count; ++i)
          static_cast<std::int32_t*>(inout)[i] += 10 * static_cast<const std::int32_t*>(in)[i];
      },
      &seen, false};
  constexpr std::size_t kCount = 5000;
  std::vector<std::vector<std::int32_t>> x;
  for (int r = 1; r <= 4; ++r) x.emplace_back(kCount, r);
  const Operand operands[] = {
      {x[0].data(), true}, {x[1].data(), true}, {x[2].data(), true}, {x[3].data(), true}};
  fold({Dtype::i32, Reduction::by(concat), true, 4}, x[2].data(), operands, kCount);
  EXPECT_EQ(x[2], std::vector<std::int32_t>(kCount, 1234));
  EXPECT_LE(seen.largest * sizeof(std::int32_t), 65536U);
}

}  // namespace
}  // namespace tutti::reduce
