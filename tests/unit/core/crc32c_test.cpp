#include "core/crc32c.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tutti {
namespace {

std::string random_bytes(std::size_t bytes) {
  std::mt19937 random(5);
  std::string text(bytes, '\0');
  for (char& byte : text) byte = static_cast<char>(random());
  return text;
}

TEST(Crc32c, gives_the_values_of_the_standard) {
  EXPECT_EQ(crc32c("", 0), 0u);
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0').data(), 32), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff').data(), 32), 0x62a8ab43u);
}

TEST(Crc32c, is_that_of_the_plain_one_for_every_length_and_alignment) {
  const std::string text = random_bytes(1200);
  for (std::size_t shift : {0u, 1u, 3u, 8u, 15u})
    for (std::size_t bytes = 0; bytes + shift <= text.size(); ++bytes)
      ASSERT_EQ(crc32c(text.data() + shift, bytes, 77),
                crc32c_plain(text.data() + shift, bytes, 77))
          << bytes << " +" << shift;
  const std::string long_text = random_bytes(1'000'003);
  EXPECT_EQ(crc32c(long_text.data(), long_text.size()),
            crc32c_plain(long_text.data(), long_text.size()));
}

TEST(Crc32c, goes_on_where_it_left_off) {
  const std::string text = random_bytes(5000);
  const std::uint32_t whole = crc32c(text.data(), text.size());
  for (const std::size_t cut : {0u, 1u, 64u, 777u, 4999u})
    EXPECT_EQ(crc32c(text.data() + cut, text.size() - cut, crc32c(text.data(), cut)), whole);
}

}  // namespace
}  // namespace tutti
