// The numerics that tutti/types.hpp promises, with results worked out by hand.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "reduce/half.hpp"
#include "reduce/kernels.hpp"

namespace tutti::reduce {
namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN();
const float kInfinity = std::numeric_limits<float>::infinity();

// Folds one element per operand at every level; long enough that body, single vectors and tail of
// the kernels all see it. All elements must come out alike.
template <class T>
T fold_one(Dtype dtype, Reduction reduction, const std::vector<T>& operands, int ranks = 0,
           bool raw = true) {
  constexpr std::size_t kCount = 4 * 64 + 64 + 3;
  std::vector<std::vector<T>> arrays;
  std::vector<Operand> list;
  for (const T& x : operands) arrays.emplace_back(kCount, x);
  for (const auto& array : arrays) list.push_back({array.data(), raw});
  const Folding folding{dtype, reduction, ranks > 0, ranks > 0 ? ranks : 1};
  std::vector<T> expected(kCount);
  fold_reference(folding, expected.data(), list, kCount);
  for (int l = 0; l < kLevels; ++l) {
    if (!can_run(static_cast<SimdLevel>(l))) continue;
    std::vector<T> result(kCount);
    fold_at(static_cast<SimdLevel>(l), folding, result.data(), list, kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      EXPECT_EQ(std::memcmp(&result[i], &expected[0], sizeof(T)), 0)
          << "level " << l << " at " << i;
  }
  return expected[0];
}

TEST(Numerics, integers_wrap) {
  EXPECT_EQ(fold_one<std::int8_t>(Dtype::i8, ReduceOp::sum, {100, 100}), -56);
  EXPECT_EQ(fold_one<std::uint8_t>(Dtype::u8, ReduceOp::prod, {16, 17}), 16);
  EXPECT_EQ(fold_one<std::uint16_t>(Dtype::u16, ReduceOp::prod, {65535, 65535}), 1);
  EXPECT_EQ(fold_one<std::int32_t>(Dtype::i32, ReduceOp::sum, {2147483647, 1}), -2147483647 - 1);
  EXPECT_EQ(fold_one<std::uint64_t>(Dtype::u64, ReduceOp::sum, {~0ULL, 2}), 1U);
  EXPECT_EQ(fold_one<std::int64_t>(Dtype::i64, ReduceOp::prod, {1LL << 62, 4}), 0);
}

TEST(Numerics, integer_avg_truncates_toward_zero) {
  EXPECT_EQ(fold_one<std::int32_t>(Dtype::i32, ReduceOp::avg, {-3, -4}, 2), -3);
  EXPECT_EQ(fold_one<std::int32_t>(Dtype::i32, ReduceOp::avg, {3, 4}, 2), 3);
  EXPECT_EQ(fold_one<std::int64_t>(Dtype::i64, ReduceOp::avg, {-1, 0, 0}, 3), 0);
  EXPECT_EQ(fold_one<std::int16_t>(Dtype::i16, ReduceOp::avg, {-7}, 2), -3);
}

TEST(Numerics, unsigned_avg_divides_unsigned_also_above_half_the_range) {
  EXPECT_EQ(fold_one<std::uint32_t>(Dtype::u32, ReduceOp::avg, {0xfffffff0U, 0}, 2), 0x7ffffff8U);
  EXPECT_EQ(fold_one<std::uint8_t>(Dtype::u8, ReduceOp::avg, {200, 50}, 2), 125);
  EXPECT_EQ(fold_one<std::uint64_t>(Dtype::u64, ReduceOp::avg, {1ULL << 63}, 4), 1ULL << 61);
}

TEST(Numerics, avg_by_more_ranks_than_the_type_can_count) {
  EXPECT_EQ(fold_one<std::int8_t>(Dtype::i8, ReduceOp::avg, {100, 27}, 300), 0);
  EXPECT_EQ(fold_one<std::int8_t>(Dtype::i8, ReduceOp::avg, {100, 27}, 128), 0);
  EXPECT_EQ(fold_one<std::uint8_t>(Dtype::u8, ReduceOp::avg, {255}, 256), 0);
}

TEST(Numerics, avg_divides_only_where_the_fold_is_finished) {
  EXPECT_EQ(fold_one<float>(Dtype::f32, ReduceOp::avg, {1, 2}), 3.0F);
  EXPECT_EQ(fold_one<float>(Dtype::f32, ReduceOp::avg, {1, 2}, 4), 0.75F);
  EXPECT_EQ(fold_one<double>(Dtype::f64, ReduceOp::avg, {1}, 3), 1.0 / 3.0);
  EXPECT_EQ(fold_one<std::uint16_t>(Dtype::f16, ReduceOp::avg, {f32_to_f16(1), f32_to_f16(2)}, 2),
            f32_to_f16(1.5F));
}

TEST(Numerics, half_types_are_folded_in_f32_and_rounded_once) {
  // 2048 + 1 + 1 in f16: step by step each +1 is lost to the even neighbour, in f32 it is not.
  const std::uint16_t big = f32_to_f16(2048);
  const std::uint16_t one = f32_to_f16(1);
  EXPECT_EQ(fold_one<std::uint16_t>(Dtype::f16, ReduceOp::sum, {big, one, one}), f32_to_f16(2050));
  const std::uint16_t b256 = f32_to_bf16(256);
  const std::uint16_t b1 = f32_to_bf16(1);
  EXPECT_EQ(fold_one<std::uint16_t>(Dtype::bf16, ReduceOp::sum, {b256, b1, b1}), f32_to_bf16(258));
  // The largest f16 twice is beyond f16 but not beyond f32.
  EXPECT_EQ(fold_one<std::uint16_t>(Dtype::f16, ReduceOp::sum, {0x7bff, 0x7bff, 0xfbff}), 0x7bff);
}

TEST(Numerics, f8e4m3_saturates_and_f8e5m2_overflows) {
  EXPECT_EQ(fold_one<std::uint8_t>(Dtype::f8e4m3, ReduceOp::sum, {0x7e, 0x7e}), 0x7e);
  EXPECT_EQ(fold_one<std::uint8_t>(Dtype::f8e4m3, ReduceOp::sum, {0xfe, 0xfe}), 0xfe);
  EXPECT_EQ(fold_one<std::uint8_t>(Dtype::f8e4m3, ReduceOp::sum, {0x7f, 0x38}), 0x7f);
  EXPECT_EQ(fold_one<std::uint8_t>(Dtype::f8e5m2, ReduceOp::sum, {0x7b, 0x7b}), 0x7c);
  EXPECT_EQ(fold_one<std::uint8_t>(Dtype::f8e5m2, ReduceOp::sum, {0x7c, 0xfc}), 0x7e);
  EXPECT_EQ(fold_one<std::uint8_t>(Dtype::f8e4m3, ReduceOp::prod,
                                   {f32_to_f8e4m3(1.5F), f32_to_f8e4m3(2.0F)}),
            f32_to_f8e4m3(3.0F));
}

TEST(Numerics, premul_multiplies_raw_operands_and_leaves_partial_folds_alone) {
  EXPECT_EQ(fold_one<float>(Dtype::f32, Reduction::premul_sum(0.5), {2, 4}), 3.0F);
  EXPECT_EQ(fold_one<float>(Dtype::f32, Reduction::premul_sum(0.5), {2, 4}, 0, false), 6.0F);
  EXPECT_EQ(fold_one<float>(Dtype::f32, Reduction::premul_sum(0.5), {2}), 1.0F);
  const float partial = 10;
  const float own = 4;
  const Operand mixed[] = {{&partial, false}, {&own, true}};
  float result = 0;
  fold({Dtype::f32, Reduction::premul_sum(0.25), true, 2}, &result, mixed, 1);
  EXPECT_EQ(result, 11.0F);
}

TEST(Numerics, premul_scales_in_the_accumulation_type) {
  // 0.1 is another number in f32 than in f64.
  EXPECT_EQ(fold_one<float>(Dtype::f32, Reduction::premul_sum(0.1), {3}), 3.0F * 0.1F);
  EXPECT_EQ(fold_one<double>(Dtype::f64, Reduction::premul_sum(0.1), {3}), 3.0 * 0.1);
}

TEST(Numerics, min_and_max_propagate_nan_from_any_place) {
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    EXPECT_TRUE(std::isnan(fold_one<float>(Dtype::f32, op, {kNan, 1, 2})));
    EXPECT_TRUE(std::isnan(fold_one<float>(Dtype::f32, op, {1, kNan, 2})));
    EXPECT_TRUE(std::isnan(fold_one<float>(Dtype::f32, op, {1, 2, -kNan})));
    EXPECT_TRUE(std::isnan(fold_one<double>(Dtype::f64, op, {1, std::nan(""), -kInfinity})));
    EXPECT_EQ(fold_one<std::uint16_t>(Dtype::f16, op, {0x3c00, 0xfd01}), 0x7e00);
    EXPECT_EQ(fold_one<std::uint16_t>(Dtype::bf16, op, {0xffff, 0x3f80}), 0x7fc0);
  }
}

TEST(Numerics, min_and_max_take_minus_zero_as_smaller) {
  for (const auto& pair : {std::vector<float>{0.0F, -0.0F}, std::vector<float>{-0.0F, 0.0F}}) {
    EXPECT_TRUE(std::signbit(fold_one<float>(Dtype::f32, ReduceOp::min, pair)));
    EXPECT_FALSE(std::signbit(fold_one<float>(Dtype::f32, ReduceOp::max, pair)));
  }
  EXPECT_EQ(fold_one<std::uint16_t>(Dtype::f16, ReduceOp::min, {0x0000, 0x8000}), 0x8000);
  EXPECT_EQ(fold_one<std::uint8_t>(Dtype::f8e4m3, ReduceOp::max, {0x80, 0x00}), 0x00);
}

TEST(Numerics, min_and_max_order_ordinary_numbers_and_infinities) {
  EXPECT_EQ(fold_one<float>(Dtype::f32, ReduceOp::min, {3, -2, 7}), -2.0F);
  EXPECT_EQ(fold_one<float>(Dtype::f32, ReduceOp::max, {3, -2, 7}), 7.0F);
  EXPECT_EQ(fold_one<float>(Dtype::f32, ReduceOp::min, {-kInfinity, 0}), -kInfinity);
  EXPECT_EQ(fold_one<std::int8_t>(Dtype::i8, ReduceOp::min, {-128, 127}), -128);
  EXPECT_EQ(fold_one<std::uint8_t>(Dtype::u8, ReduceOp::max, {128, 127}), 128);
  EXPECT_EQ(fold_one<std::int64_t>(Dtype::i64, ReduceOp::max, {-5, -6}), -5);
}

TEST(Numerics, a_nan_that_is_computed_is_the_canonical_one) {
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  EXPECT_EQ(bits(fold_one<float>(Dtype::f32, ReduceOp::sum, {kInfinity, -kInfinity})), 0x7fc00000U);
  const float one = std::bit_cast<float>(0xffc12345U);
  const float other = std::bit_cast<float>(0x7fc54321U);
  EXPECT_EQ(bits(fold_one<float>(Dtype::f32, ReduceOp::sum, {one, other})), 0x7fc00000U);
  EXPECT_EQ(bits(fold_one<float>(Dtype::f32, ReduceOp::max, {1, one})), 0x7fc00000U);
}

TEST(Numerics, any_non_zero_byte_is_true_and_true_is_written_as_one) {
  const auto fold_bool = [](ReduceOp op, std::vector<std::uint8_t> x) {
    return fold_one<std::uint8_t>(Dtype::boolean, op, x);
  };
  EXPECT_EQ(fold_bool(ReduceOp::sum, {0, 0x80}), 1);
  EXPECT_EQ(fold_bool(ReduceOp::sum, {0, 0}), 0);
  EXPECT_EQ(fold_bool(ReduceOp::prod, {2, 4}), 1);
  EXPECT_EQ(fold_bool(ReduceOp::min, {2, 0}), 0);
  EXPECT_EQ(fold_bool(ReduceOp::max, {2, 0}), 1);
  EXPECT_EQ(fold_bool(ReduceOp::band, {1, 2}), 1);
  EXPECT_EQ(fold_bool(ReduceOp::bor, {0, 7}), 1);
  EXPECT_EQ(fold_bool(ReduceOp::bxor, {3, 5}), 0);
  EXPECT_EQ(fold_bool(ReduceOp::bxor, {3, 0}), 1);
  EXPECT_EQ(fold_bool(ReduceOp::sum, {0x40}), 1);
}

TEST(Numerics, bit_operations_work_on_all_bits) {
  EXPECT_EQ(fold_one<std::uint32_t>(Dtype::u32, ReduceOp::band, {0xff00ff00U, 0x0ff00ff0U}),
            0x0f000f00U);
  EXPECT_EQ(fold_one<std::int16_t>(Dtype::i16, ReduceOp::bor, {0x0101, -0x8000}), -0x7eff);
  EXPECT_EQ(fold_one<std::uint64_t>(Dtype::u64, ReduceOp::bxor, {~0ULL, 1}), ~1ULL);
}

TEST(Numerics, the_fold_goes_left_to_right) {
  EXPECT_EQ(fold_one<float>(Dtype::f32, ReduceOp::sum, {1e8F, 1, -1e8F}), 0.0F);
  EXPECT_EQ(fold_one<float>(Dtype::f32, ReduceOp::sum, {1e8F, -1e8F, 1}), 1.0F);
}

}  // namespace
}  // namespace tutti::reduce
