// The table of element types against what each is, spelled out by hand: every other reader trusts it.
#include "tutti/dtypes.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tutti/tutti.h"

namespace tutti {
namespace {

static_assert(dtype_of<bool>() == Dtype::boolean);
static_assert(dtype_of<signed char>() == Dtype::i8 && dtype_of<unsigned char>() == Dtype::u8);
static_assert(dtype_of<short>() == Dtype::i16 && dtype_of<unsigned short>() == Dtype::u16);
static_assert(dtype_of<int>() == Dtype::i32 && dtype_of<const unsigned>() == Dtype::u32);
static_assert(dtype_of<long>() == Dtype::i64 && dtype_of<unsigned long long>() == Dtype::u64);
static_assert(dtype_of<float>() == Dtype::f32 && dtype_of<double>() == Dtype::f64);

TEST(Dtypes, have_the_size_that_their_words_say) {
  for (int i = 0; i < kDtypes; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    const std::string word(to_string(dtype));
    const std::size_t digit = word.find_first_of("0123456789");
    const int bits = digit == std::string::npos ? 8 : std::stoi(word.substr(digit));
    EXPECT_EQ(8 * size_of(dtype), static_cast<std::size_t>(bits)) << word;
  }
}

TEST(Dtypes, floats_fill_their_bytes) {
  for (int i = 0; i < kDtypes; ++i) {
    const DtypeInfo& info = info_of(static_cast<Dtype>(i));
    if (info.is_float())
      EXPECT_EQ(1 + info.exponent_bits + info.mantissa_bits, 8 * info.bytes) << info.word;
    else
      EXPECT_EQ(info.exponent_bits + info.mantissa_bits, 0) << info.word;
  }
  EXPECT_EQ(info_of(Dtype::f8e4m3).kind, DtypeKind::finite);
  EXPECT_EQ(info_of(Dtype::f8e5m2).kind, DtypeKind::real);
}

TEST(Dtypes, no_two_have_a_name_in_common) {
  std::set<std::string> words, files, numpy, dlpack;
  for (const DtypeInfo& info : kDtypeInfos) {
    EXPECT_TRUE(words.emplace(info.word).second) << info.word;
    EXPECT_TRUE(files.emplace(info.safetensors).second) << info.word;
    EXPECT_TRUE(numpy.emplace(info.numpy).second) << info.word;
    EXPECT_TRUE(
        dlpack.insert(std::to_string(info.dlpack) + "/" + std::to_string(info.bytes)).second)
        << info.word;
  }
}

TEST(Dtypes,
     numbers_do_not_change) {  // they are in traces, and in programs built against the C API
  EXPECT_EQ(static_cast<int>(Dtype::i8), 0);
  EXPECT_EQ(static_cast<int>(Dtype::f16), 8);
  EXPECT_EQ(static_cast<int>(Dtype::f32), 10);
  EXPECT_EQ(static_cast<int>(Dtype::boolean), 12);
  EXPECT_EQ(static_cast<int>(Dtype::f8e5m2), 14);
  EXPECT_EQ(TUTTI_BOOL, 12);
  EXPECT_EQ(TUTTI_F8E5M2, 14);
  EXPECT_EQ(to_string(Dtype::boolean), "bool");
}

}  // namespace
}  // namespace tutti
