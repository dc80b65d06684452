// How times of a device are placed on the host's clock.
#include "engine/device_times.hpp"

#include <gtest/gtest.h>

namespace tutti::engine {
namespace {

TEST(DeviceClock, takes_the_latest_of_what_must_have_been) {
  DeviceClock clock;
  clock.begun(0, 5000);  // behind other work: it was launched long before
  EXPECT_EQ(clock.offset(), 5000);
  clock.begun(2000, 9000);  // in an idle stream
  EXPECT_EQ(clock.offset(), 7000);
  clock.begun(3000, 9500);
  EXPECT_EQ(clock.offset(), 7000);
}

TEST(DeviceClock, lets_nothing_end_after_it_was_seen) {
  DeviceClock clock;
  clock.begun(0, 7000);
  clock.ended(1000, 7500);
  EXPECT_EQ(clock.offset(), 6500);
}

TEST(DeviceClock, goes_on_roughly_where_it_was_after_a_restart) {
  DeviceClock clock;
  clock.begun(0, 7000);
  clock.ended(1000, 9000);
  clock.restart(1'000'000);  // device times are smaller by this
  EXPECT_LE(clock.offset(), 1'007'000);
  EXPECT_GE(clock.offset(), 1'007'000 - 50'000);
  clock.begun(0, 1'007'500);
  EXPECT_EQ(clock.offset(), 1'007'500);
}

}  // namespace
}  // namespace tutti::engine
