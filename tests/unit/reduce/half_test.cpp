// Conversions of 16- and 8-bit floats: every pattern of the narrow types, and the edges of f32.
#include "reduce/half.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace tutti::reduce {
namespace {

// What a pattern means, by the definition of the format and in double, where all of them are exact.
double meaning(unsigned bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const unsigned mantissa = bits & ((1U << mantissa_bits) - 1);
  const unsigned exponent = (bits >> mantissa_bits) & ((1U << exponent_bits) - 1);
  const double sign = (bits >> (exponent_bits + mantissa_bits)) & 1U ? -1.0 : 1.0;
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1.0 + fraction, static_cast<int>(exponent) - bias);
}

struct Format {
  const char* name;
  int exponent_bits;
  int mantissa_bits;
  bool infinite;  // the highest exponent means infinity and NaN
  float (*widen)(unsigned);
  unsigned (*narrow)(float);

  unsigned patterns() const { return 1U << (1 + exponent_bits + mantissa_bits); }
  unsigned magnitude(unsigned bits) const { return bits & (patterns() / 2 - 1); }
  unsigned infinity() const { return ((1U << exponent_bits) - 1) << mantissa_bits; }
  bool is_nan(unsigned bits) const {
    return infinite ? magnitude(bits) > infinity() : magnitude(bits) == patterns() / 2 - 1;
  }
  bool is_infinite(unsigned bits) const { return infinite && magnitude(bits) == infinity(); }
  unsigned largest() const { return infinite ? infinity() - 1 : patterns() / 2 - 2; }
  double value(unsigned bits) const { return meaning(bits, exponent_bits, mantissa_bits); }
};

const std::vector<Format>& formats() {
  static const std::vector<Format> kFormats = {
      {"f16", 5, 10, true, [](unsigned x) { return f16_to_f32(static_cast<std::uint16_t>(x)); },
       [](float x) { return unsigned{f32_to_f16(x)}; }},
      {"bf16", 8, 7, true, [](unsigned x) { return bf16_to_f32(static_cast<std::uint16_t>(x)); },
       [](float x) { return unsigned{f32_to_bf16(x)}; }},
      {"f8e4m3", 4, 3, false,
       [](unsigned x) { return f8e4m3_to_f32(static_cast<std::uint8_t>(x)); },
       [](float x) { return unsigned{f32_to_f8e4m3(x)}; }},
      {"f8e5m2", 5, 2, true, [](unsigned x) { return f8e5m2_to_f32(static_cast<std::uint8_t>(x)); },
       [](float x) { return unsigned{f32_to_f8e5m2(x)}; }},
  };
  return kFormats;
}

TEST(Half, every_pattern_widens_to_exactly_what_it_means) {
  for (const Format& format : formats())
    for (unsigned bits = 0; bits < format.patterns(); ++bits) {
      const float wide = format.widen(bits);
      SCOPED_TRACE(testing::Message() << format.name << " 0x" << std::hex << bits);
      ASSERT_EQ(std::signbit(wide), (bits & (format.patterns() / 2)) != 0);
      ASSERT_EQ(std::isnan(wide), format.is_nan(bits));
      if (format.is_nan(bits)) continue;
      ASSERT_EQ(std::isinf(wide), format.is_infinite(bits));
      if (!std::isinf(wide)) {
        ASSERT_EQ(static_cast<double>(wide), format.value(bits));
      }
    }
}

TEST(Half, every_pattern_survives_the_way_to_f32_and_back) {
  for (const Format& format : formats())
    for (unsigned bits = 0; bits < format.patterns(); ++bits) {
      SCOPED_TRACE(testing::Message() << format.name << " 0x" << std::hex << bits);
      const unsigned back = format.narrow(format.widen(bits));
      const unsigned quiet = 1U << (format.mantissa_bits - 1);
      const bool nan = format.is_nan(bits);
      ASSERT_EQ(back, nan && format.infinite ? bits | quiet : bits);
    }
}

TEST(Half, between_two_neighbours_the_nearer_wins_and_a_tie_goes_to_the_even_one) {
  for (const Format& format : formats())
    for (unsigned low = 0; low < format.largest(); ++low) {
      SCOPED_TRACE(testing::Message() << format.name << " above 0x" << std::hex << low);
      const double middle = (format.value(low) + format.value(low + 1)) / 2;
      const float tie = static_cast<float>(middle);
      if (static_cast<double>(tie) != middle) continue;  // below f32's own resolution
      const unsigned even = low % 2 == 0 ? low : low + 1;
      const unsigned sign = format.patterns() / 2;
      ASSERT_EQ(format.narrow(tie), even);
      ASSERT_EQ(format.narrow(-tie), even | sign);
      ASSERT_EQ(format.narrow(std::nextafter(tie, 0.0F)), low);
      const float infinity = std::numeric_limits<float>::infinity();
      ASSERT_EQ(format.narrow(std::nextafter(tie, infinity)), low + 1);
      ASSERT_EQ(format.narrow(-std::nextafter(tie, 0.0F)), low | sign);
    }
}

TEST(Half, beyond_the_largest_number_e4m3_saturates_and_the_others_become_infinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f32_to_f16(65519.996F), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7c00);
  EXPECT_EQ(f32_to_f16(1e30F), 0x7c00);
  EXPECT_EQ(f32_to_f16(-infinity), 0xfc00);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(f32_to_bf16(-infinity), 0xff80);
  EXPECT_EQ(f32_to_f8e5m2(61439.996F), 0x7b);
  EXPECT_EQ(f32_to_f8e5m2(61440.0F), 0x7c);
  EXPECT_EQ(f32_to_f8e5m2(-1e9F), 0xfc);
  EXPECT_EQ(f32_to_f8e4m3(448.0F), 0x7e);
  EXPECT_EQ(f32_to_f8e4m3(464.0F), 0x7e);
  EXPECT_EQ(f32_to_f8e4m3(480.0F), 0x7e);
  EXPECT_EQ(f32_to_f8e4m3(infinity), 0x7e);
  EXPECT_EQ(f32_to_f8e4m3(-infinity), 0xfe);
}

TEST(Half, tiny_numbers_round_into_the_subnormals_or_to_a_signed_zero) {
  EXPECT_EQ(f32_to_f16(std::ldexp(1.0F, -24)), 0x0001);
  EXPECT_EQ(f32_to_f16(std::ldexp(1.0F, -25)), 0x0000);
  EXPECT_EQ(f32_to_f16(-std::ldexp(1.0F, -25)), 0x8000);
  EXPECT_EQ(f32_to_f16(std::ldexp(1.5F, -25)), 0x0001);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x00008000U)), 0x0000);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x00018000U)), 0x0002);
  EXPECT_EQ(f32_to_f8e4m3(std::ldexp(1.0F, -9)), 0x01);
  EXPECT_EQ(f32_to_f8e4m3(std::ldexp(1.0F, -10)), 0x00);
  EXPECT_EQ(f32_to_f8e5m2(std::ldexp(1.0F, -16)), 0x01);
  EXPECT_EQ(f32_to_f8e5m2(-std::ldexp(1.0F, -17)), 0x80);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0x0000);
}

TEST(Half, a_nan_stays_a_nan_of_its_sign) {
  const float positive = std::bit_cast<float>(0x7f800001U);
  const float negative = std::bit_cast<float>(0xffc00000U);
  EXPECT_EQ(f32_to_f16(positive), 0x7e00);
  EXPECT_EQ(f32_to_f16(negative), 0xfe00);
  EXPECT_EQ(f32_to_bf16(positive), 0x7fc0);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7fffffffU)), 0x7fff);
  EXPECT_EQ(f32_to_f8e4m3(positive), 0x7f);
  EXPECT_EQ(f32_to_f8e4m3(negative), 0xff);
  EXPECT_EQ(f32_to_f8e5m2(positive), 0x7e);
  EXPECT_EQ(f32_to_f8e5m2(negative), 0xfe);
}

#if defined(__x86_64__)
[[gnu::target("avx2,f16c")]] void narrow_by_f16c(const float* from, std::uint16_t* to) {
  for (int i = 0; i < 8; ++i) to[i] = 0;
  typedef float V8 __attribute__((vector_size(32)));
  V8 value;
  std::memcpy(&value, from, sizeof value);
  const auto narrow = __builtin_ia32_vcvtps2ph256(value, 0);
  std::memcpy(to, &narrow, 16);
}

TEST(Half, f16_agrees_with_the_processor_on_random_f32_patterns) {
  if (!__builtin_cpu_supports("f16c") || !__builtin_cpu_supports("avx2"))
    GTEST_SKIP() << "this processor has no F16C";
  std::mt19937 random(7);
  for (int round = 0; round < 200'000; ++round) {
    float from[8];
    std::uint16_t to[8];
    for (float& x : from) x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    narrow_by_f16c(from, to);
    for (int i = 0; i < 8; ++i)
      ASSERT_EQ(f32_to_f16(from[i]), to[i]) << std::hex << std::bit_cast<std::uint32_t>(from[i]);
  }
}
#endif

}  // namespace
}  // namespace tutti::reduce
