// copy(): every byte arrives and no other is touched, whatever the alignment, size and level.
#include "reduce/copy.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "unit/reduce/fold_cases.hpp"

namespace tutti::reduce {
namespace {

Bytes noise(std::size_t bytes) {
  std::mt19937 random(31);
  Bytes result(bytes);
  for (auto& byte : result) byte = static_cast<unsigned char>(random());
  return result;
}

// Copies from one offset to another between guards, at every level, with both kinds of stores.
void check(const Bytes& source, std::size_t from, std::size_t to, std::size_t bytes) {
  constexpr unsigned char kUntouched = 0xab;
  Bytes expected(to + bytes + 80, kUntouched);
  std::copy_n(source.begin() + static_cast<long>(from), bytes,
              expected.begin() + static_cast<long>(to));
  for (const SimdLevel level : levels())
    for (const Stores stores : {Stores::cached, Stores::streaming}) {
      Bytes result(expected.size(), kUntouched);
      copy_at(level, result.data() + to, source.data() + from, bytes, stores);
      ASSERT_EQ(result, expected) << bytes << " bytes from +" << from << " to +" << to << ", level "
                                  << static_cast<int>(level) << ", stores "
                                  << static_cast<int>(stores);
    }
}

TEST(Copy, moves_every_length_up_to_a_few_strips) {
  const Bytes source = noise(1000);
  for (std::size_t bytes = 0; bytes <= 600; ++bytes) check(source, bytes % 7, bytes % 65, bytes);
}

TEST(Copy, moves_between_all_pairs_of_phases_in_a_line) {
  const Bytes source = noise(1000);
  for (std::size_t from = 0; from < 64; from += 3)
    for (std::size_t to = 0; to < 64; ++to) check(source, from, to, 513);
}

TEST(Copy, moves_large_pieces) {
  const Bytes source = noise((1 << 20) + 100);
  for (const std::size_t bytes : {4096, 65536 + 1, (1 << 20) - 17}) check(source, 9, 70, bytes);
}

TEST(Copy, to_itself_changes_nothing) {
  Bytes x = noise(777);
  const Bytes before = x;
  for (const Stores stores : {Stores::cached, Stores::streaming}) {
    copy(x.data(), x.data(), x.size(), stores);
    EXPECT_EQ(x, before);
  }
}

}  // namespace
}  // namespace tutti::reduce
