// The scale follows outcomes as Megatron's dynamic one does, and goes through a checkpoint.
#include "tutti/train/loss_scale.hpp"

#include <gtest/gtest.h>

namespace tutti::train {
namespace {

using enum Outcome;

double after(LossScale& scale, std::initializer_list<Outcome> outcomes) {
  for (const Outcome outcome : outcomes) scale.note(outcome);
  return scale.value();
}

TEST(LossScale, is_halved_by_each_skip_when_as_many_as_it_forgives_are_used_up) {
  LossScale scale({.initial = 1024, .least = 128, .window = 4, .hysteresis = 3});
  EXPECT_EQ(after(scale, {skipped, updated, skipped}), 1024) << "good steps between change nothing";
  EXPECT_EQ(after(scale, {skipped}), 512);
  EXPECT_EQ(after(scale, {updated, skipped}), 256) << "and from then on each one counts";
  EXPECT_TRUE(scale.may_fall());
  EXPECT_EQ(after(scale, {skipped, skipped}), 128);
  EXPECT_FALSE(scale.may_fall());
}

TEST(LossScale, is_doubled_by_so_many_good_steps_in_a_row_and_forgives_again) {
  LossScale scale({.initial = 8, .window = 3, .hysteresis = 2});
  EXPECT_EQ(after(scale, {updated, updated, skipped, updated, updated}), 8);
  EXPECT_EQ(after(scale, {empty}), 8) << "nothing was learned of it";
  EXPECT_EQ(after(scale, {updated}), 16);
  EXPECT_EQ(after(scale, {skipped}), 16);
  EXPECT_EQ(after(scale, {rejected}), 8);
}

TEST(LossScale, that_is_fixed_stays) {
  LossScale scale({.fixed = 3});
  EXPECT_EQ(after(scale, {skipped, skipped, skipped}), 3);
  EXPECT_FALSE(scale.may_fall());
  EXPECT_TRUE(scale.restore(LossScale({}).state()).ok());
  EXPECT_EQ(scale.value(), 3);
}

TEST(LossScale, goes_on_from_its_state_and_names_what_is_none) {
  const LossScale::Options options{.initial = 64, .window = 3, .hysteresis = 2};
  LossScale first(options), second(options);
  (void)after(first, {skipped, updated, updated});
  ASSERT_TRUE(second.restore(first.state()).ok());
  EXPECT_EQ(after(second, {updated, skipped}), after(first, {updated, skipped}));
  EXPECT_EQ(second.value(), 128);
  for (const char* text :
       {"", "scale 0 good 1 skipped 2", "scale inf good 1 skipped 2", "scale 8 good"})
    EXPECT_EQ(second.restore(text).code(), Code::corrupt) << text;
  EXPECT_EQ(second.value(), 128);
}

}  // namespace
}  // namespace tutti::train
