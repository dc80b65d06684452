#include "engine/wait_pattern.hpp"

#include <gtest/gtest.h>

namespace tutti::engine {
namespace {

using namespace std::chrono_literals;

void wait_in_a_row(WaitPattern& pattern, int times) {
  for (int i = 0; i < times; ++i) {
    pattern.on_start(i * 1ms);
    pattern.on_wait(i * 1ms + 2us);
  }
}

TEST(WaitPattern, comes_with_a_row_of_prompt_waits) {
  WaitPattern pattern;
  wait_in_a_row(pattern, 7);
  EXPECT_FALSE(pattern.waits_at_once());
  wait_in_a_row(pattern, 1);
  EXPECT_TRUE(pattern.waits_at_once());
}

TEST(WaitPattern, goes_with_a_late_wait) {
  WaitPattern pattern;
  wait_in_a_row(pattern, 20);
  pattern.on_start(1s);
  pattern.on_wait(1s + 1ms);
  EXPECT_FALSE(pattern.waits_at_once());
}

TEST(WaitPattern, goes_with_a_work_that_was_left_alone) {
  WaitPattern pattern;
  wait_in_a_row(pattern, 20);
  pattern.on_left_alone();
  EXPECT_FALSE(pattern.waits_at_once());
}

TEST(WaitPattern, does_not_count_waits_for_what_was_not_started_here) {
  WaitPattern pattern;
  for (int i = 0; i < 20; ++i) pattern.on_wait(i * 1us);
  EXPECT_FALSE(pattern.waits_at_once());
}

}  // namespace
}  // namespace tutti::engine
