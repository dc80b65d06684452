#include "core/siphash.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>

namespace tutti {
namespace {

// Key 00 01 … 0f; the message of n bytes is 00 01 … n−1: the vectors that came with the algorithm.
class Siphash : public testing::Test {
 protected:
  Siphash() {
    std::array<unsigned char, 64> counting{};
    for (std::size_t i = 0; i < counting.size(); ++i) counting[i] = static_cast<unsigned char>(i);
    std::memcpy(&key_, counting.data(), sizeof key_);
    message_ = counting;
  }
  std::uint64_t of(std::size_t bytes) const { return siphash(key_, message_.data(), bytes); }
  SipKey key_;
  std::array<unsigned char, 64> message_{};
};

TEST_F(Siphash, gives_the_published_tags) {
  EXPECT_EQ(of(0), 0x726fdb47dd0e0e31u);
  EXPECT_EQ(of(1), 0x74f839c593dc67fdu);
  EXPECT_EQ(of(8), 0x93f5f5799a932462u);
  EXPECT_EQ(of(15), 0xa129ca6149be45e5u);
}

TEST_F(Siphash, changes_with_every_bit_of_message_and_key) {
  std::set<std::uint64_t> tags{of(24)};
  for (std::size_t bit = 0; bit < 24 * 8; ++bit) {
    message_[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    EXPECT_TRUE(tags.insert(of(24)).second) << "bit " << bit;
    message_[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
  }
  key_.high ^= 1;
  EXPECT_TRUE(tags.insert(of(24)).second);
}

}  // namespace
}  // namespace tutti
