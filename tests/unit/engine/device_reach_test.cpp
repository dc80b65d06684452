#include "engine/device_reach.hpp"

#include <gtest/gtest.h>

namespace tutti::engine {
namespace {

TEST(DeviceReach, takes_no_message_that_reaches_beyond_its_allocation) {
  const cuda::Allocation mapped{.base = 0x1000, .bytes = 100};
  const auto place = [&](std::uint64_t offset, std::size_t bytes) {
    return place_of({DeviceNote::Word::offer, 1, offset, 1 << 30, {}}, mapped, bytes);
  };
  EXPECT_EQ(*place(0, 100), 0x1000U);
  EXPECT_EQ(*place(60, 40), 0x103cU);
  EXPECT_EQ(*place(100, 0), 0x1064U);
  EXPECT_EQ(place(60, 41).status().code(), Code::corrupt);
  EXPECT_EQ(place(101, 0).status().code(), Code::corrupt);
  EXPECT_EQ(place(~std::uint64_t{0}, 2).status().code(), Code::corrupt);
}

}  // namespace
}  // namespace tutti::engine
