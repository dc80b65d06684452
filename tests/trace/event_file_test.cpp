#include "event_file.hpp"

#include <gtest/gtest.h>

#include <array>

namespace pretrain {
namespace {

// RFC 3720, appendix B.4, and the check value of the polynomial.
TEST(event_file, crc32c_gives_the_known_values) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string rising;
  for (char byte = 0; byte < 32; ++byte) rising += byte;
  EXPECT_EQ(crc32c(rising), 0x46dd794eu);
}

TEST(event_file, the_mask_turns_by_fifteen_and_adds_its_constant) {
  const std::uint32_t crc = 0xe3069283u;
  EXPECT_EQ(masked_crc32c("123456789"), ((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

TEST(event_file, an_event_of_one_scalar_is_these_bytes) {
  const std::array scalars = {Scalar{"loss", 1.5}};
  const std::string event = scalar_event(2.0, 300, scalars);
  const std::string wanted(
      "\x09\0\0\0\0\0\0\0\x40"  // wall_time = 2.0
      "\x10\xac\x02"            // step = 300
      "\x2a\x0d"                // summary, 13 bytes
      "\x0a\x0b"                //   value, 11 bytes
      "\x0a\x04loss"            //     tag
      "\x15\0\0\xc0\x3f",       //     simple_value = 1.5
      9 + 3 + 2 + 2 + 6 + 5);
  EXPECT_EQ(event, wanted);
}

TEST(event_file, a_record_is_length_crc_payload_crc) {
  const std::string record = record_of("abc");
  ASSERT_EQ(record.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\3\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 3), "abc");
}

TEST(event_file, a_folder_that_cannot_be_made_is_named) {
  const auto events = EventFile::create("/proc/nowhere/events");
  ASSERT_FALSE(events.ok());
  EXPECT_NE(events.status().message().find("/proc/nowhere/events"), std::string::npos);
}

}  // namespace
}  // namespace pretrain
