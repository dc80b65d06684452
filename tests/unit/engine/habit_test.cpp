#include "engine/habit.hpp"

#include <gtest/gtest.h>

namespace tutti::engine {
namespace {

using namespace std::chrono_literals;

void wait_in_a_row(Habit& habit, int times) {
  for (int i = 0; i < times; ++i) {
    habit.on_start(i * 1ms);
    habit.on_wait(i * 1ms + 2us);
  }
}

TEST(Habit, comes_with_a_row_of_prompt_waits) {
  Habit habit;
  wait_in_a_row(habit, 7);
  EXPECT_FALSE(habit.waits_at_once());
  wait_in_a_row(habit, 1);
  EXPECT_TRUE(habit.waits_at_once());
}

TEST(Habit, goes_with_a_late_wait) {
  Habit habit;
  wait_in_a_row(habit, 20);
  habit.on_start(1s);
  habit.on_wait(1s + 1ms);
  EXPECT_FALSE(habit.waits_at_once());
}

TEST(Habit, goes_with_a_work_that_was_left_alone) {
  Habit habit;
  wait_in_a_row(habit, 20);
  habit.on_left_alone();
  EXPECT_FALSE(habit.waits_at_once());
}

TEST(Habit, does_not_count_waits_for_what_was_not_started_here) {
  Habit habit;
  for (int i = 0; i < 20; ++i) habit.on_wait(i * 1us);
  EXPECT_FALSE(habit.waits_at_once());
}

}  // namespace
}  // namespace tutti::engine
