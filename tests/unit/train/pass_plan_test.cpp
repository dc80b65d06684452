#include "train/pass_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::train {
namespace {

using testing::ElementsAre;

// Buckets 0, 1, 2 … of one parameter and 256 elements each.
BucketLayout layout_of(std::size_t buckets) {
  BucketLayout layout;
  for (std::size_t i = 0; i < buckets; ++i) {
    layout.buckets.push_back({Dtype::f32, {i}, 256});
    layout.place.emplace_back(BucketPlace{i, 0});
  }
  return layout;
}

std::vector<WeightUse> uses_of(const std::vector<std::size_t>& forward,
                               const std::vector<std::size_t>& backward) {
  std::vector<WeightUse> uses;
  for (const bool in_backward : {false, true})
    for (const std::size_t parameter : in_backward ? backward : forward)
      for (const bool begins : {true, false}) uses.push_back({parameter, begins, in_backward});
  return uses;
}

TEST(pass_plan, has_a_gather_for_each_use_and_keeps_what_is_used_again_at_once) {
  const PassPlan plan = make_pass_plan(layout_of(3), uses_of({0, 1, 2}, {2, 1, 0}), 1);
  EXPECT_THAT(plan.buckets, ElementsAre(0, 1, 2, 2, 1, 0));
  EXPECT_THAT(plan.is_kept, ElementsAre(false, false, false, true, false, false));
  EXPECT_EQ(plan.backward, 3u);
  EXPECT_EQ(plan.bytes_at_once, 2u * 1024);  // one in use, one ahead
}

TEST(pass_plan, keeps_more_the_further_it_looks_ahead) {
  const PassPlan plan = make_pass_plan(layout_of(3), uses_of({0, 1, 2}, {2, 1, 0}), 3);
  EXPECT_THAT(plan.is_kept, ElementsAre(false, false, false, true, true, false));
  EXPECT_EQ(plan.bytes_at_once, 3u * 1024);
}

TEST(pass_plan, gathers_what_was_not_used_between_the_passes) {
  const PassPlan plan = make_pass_plan(layout_of(4), uses_of({3, 1}, {1}), 1);
  EXPECT_THAT(plan.buckets, ElementsAre(3, 1, 0, 2, 0, 2, 3, 1));
  EXPECT_EQ(plan.backward, 4u);
  EXPECT_EQ(plan.used_backward, 7u);
}

TEST(pass_plan, has_one_more_for_what_was_not_used_in_a_bucket_that_was) {
  BucketLayout layout = layout_of(1);
  layout.buckets[0].parameters = {0, 1, 2};
  layout.place.assign(3, BucketPlace{0, 0});
  const PassPlan plan = make_pass_plan(layout, uses_of({1}, {1}), 1);
  EXPECT_THAT(plan.buckets, ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(plan.is_kept, ElementsAre(false, true, true, true, true, true));
}

TEST(pass_plan, counts_a_bucket_that_is_used_within_the_use_of_another_once) {
  std::vector<WeightUse> uses{{0, true}, {1, true}, {1, false}, {1, true}, {1, false}, {0, false}};
  const PassPlan plan = make_pass_plan(layout_of(2), uses, 1);
  EXPECT_THAT(std::vector(plan.buckets.begin(), plan.buckets.begin() + 3), ElementsAre(0, 1, 1));
  EXPECT_TRUE(plan.is_kept[2]);
  EXPECT_EQ(plan.bytes_at_once, 2u * 1024);
}

TEST(depth, of_one_hides_gathers_that_are_shorter_than_compute_but_the_first) {
  const std::vector<PacedGather> gathers(10, {.compute_s = 2, .gather_s = 1});
  EXPECT_DOUBLE_EQ(exposed_s(gathers, 1), 1);
  EXPECT_EQ(choose_depth(gathers, 4), 1u);
}

TEST(depth, grows_where_short_units_stand_before_a_long_gather) {
  // A long gather every fifth unit: one unit's compute does not cover it, three do.
  std::vector<PacedGather> gathers;
  for (int i = 0; i < 20; ++i)
    gathers.push_back({.compute_s = 1, .gather_s = i % 5 == 4 ? 2.5 : 0.2});
  EXPECT_GT(exposed_s(gathers, 1), exposed_s(gathers, 3) + 4);
  EXPECT_EQ(choose_depth(gathers, 4), 3u);
}

TEST(depth, is_not_wasted_where_nothing_can_hide) {
  const std::vector<PacedGather> gathers(10, {.compute_s = 0.1, .gather_s = 1});
  EXPECT_EQ(choose_depth(gathers, 4), 1u);
  EXPECT_NEAR(exposed_s(gathers, 1), 10 - 0.9, 1e-9);
}

}  // namespace
}  // namespace tutti::train
