// Whether a host has room for a job, said before it begins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tool/run/room.hpp"
#include "transport/window.hpp"

namespace tutti::tool {
namespace {

using ::testing::HasSubstr;

TEST(RunRoom, memory_is_what_the_windows_take) {
  Config config;
  for (const int ranks : {2, 8, 64, 100, 500, 1000}) {
    const double windows =
        ranks *
        static_cast<double>(transport::WindowShape::of(ranks, config.segment_bytes).bytes());
    const double ranks_own = ranks * 3.0 * 0x1p20;
    const auto needs = RoomNeeds::of(ranks, ranks, config, false);
    EXPECT_NEAR(static_cast<double>(needs.memory_bytes) - ranks_own, windows, 0.05 * windows)
        << ranks;
  }
}

TEST(RunRoom, what_is_short_is_named) {
  Config config;
  const RoomNeeds needs = RoomNeeds::of(1000, 1000, config, false);
  EXPECT_TRUE(check_room(1000, needs, {}, true).ok());
  EXPECT_THAT(check_room(1000, needs, {.descriptors = 1024}, true).message(),
              HasSubstr("1000 ranks do not fit on this host: a process needs 4032 open files and "
                        "may have 1024"));
  EXPECT_THAT(check_room(1000, needs, {.threads = 1500}, true).message(),
              HasSubstr("2000 threads and it allows 1500"));
  EXPECT_THAT(check_room(1000, needs, {.memory_bytes = 1 << 30}, true).message(),
              HasSubstr("GiB of memory and 1.0 GiB are there"));
  EXPECT_THAT(
      check_room(4, RoomNeeds::of(4, 4, config, false), {.memory_bytes = 16 << 20}, true).message(),
      HasSubstr("MiB of memory and 16 MiB are there"));
  EXPECT_THAT(check_room(2, RoomNeeds::of(2, 2, config, false), {.address_bytes = 100 << 20}, true)
                  .message(),
              HasSubstr("each needs 162 MiB of address space and may have 100 MiB"));
  // A program that makes no group needs none of that.
  EXPECT_TRUE(check_room(1000, needs, {.memory_bytes = 1 << 30}, false).ok());
}

TEST(RunRoom, without_shared_memory_there_are_fewer_of_everything) {
  Config config;
  config.transport = "tcp";
  const RoomNeeds needs = RoomNeeds::of(100, 300, config, false);
  EXPECT_LT(needs.memory_bytes, std::uint64_t{1} << 30);
  EXPECT_EQ(needs.rank_descriptors, 632u);  // two connections with each
  config.tcp_express = false;
  EXPECT_EQ(RoomNeeds::of(100, 300, config, false).rank_descriptors, 332u);
}

}  // namespace
}  // namespace tutti::tool
