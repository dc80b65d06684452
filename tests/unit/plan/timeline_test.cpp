// What a step hides, in cases that can be drawn on paper.
#include "tutti/plan/timeline.hpp"

#include <gtest/gtest.h>

#include <random>

namespace tutti::plan {
namespace {

// k buckets that become ready at even distances, the last one when backward ends.
std::vector<Transfer> uniform(int k, double backward_s, double seconds_each) {
  std::vector<Transfer> transfers;
  for (int i = 1; i <= k; ++i) transfers.push_back({backward_s * i / k, seconds_each});
  return transfers;
}

TEST(timeline, each_starts_when_it_is_ready_and_the_channel_is_free) {
  // Ready at 1, 2, 9 of 10 s; 3 s each: 1…4, 4…7, 9…12.
  const std::vector<Transfer> transfers = {{1, 3}, {2, 3}, {9, 3}};
  const Hidden hidden = hide_reductions(10, transfers);
  EXPECT_DOUBLE_EQ(hidden.wire_s, 9);
  EXPECT_DOUBLE_EQ(hidden.exposed_s, 2);
  EXPECT_DOUBLE_EQ(hidden.end_s, 12);
  EXPECT_DOUBLE_EQ(hidden.stolen_s, 0);
}

TEST(timeline, nothing_to_send_exposes_nothing) {
  EXPECT_DOUBLE_EQ(hide_reductions(10, {}).exposed_s, 0);
  EXPECT_DOUBLE_EQ(hide_gathers(10, {}).exposed_s, 0);
  EXPECT_DOUBLE_EQ(hide_gathers(10, {}).end_s, 10);
}

TEST(timeline, one_bucket_or_no_compute_exposes_everything) {
  EXPECT_DOUBLE_EQ(hide_reductions(10, uniform(1, 10, 4)).exposed_s, 4);
  EXPECT_DOUBLE_EQ(hide_reductions(0, uniform(5, 0, 4)).exposed_s, 20);
  EXPECT_DOUBLE_EQ(hide_gathers(0, uniform(5, 0, 4)).exposed_s, 20);
}

TEST(timeline, many_short_buckets_expose_almost_nothing) {
  EXPECT_NEAR(hide_reductions(10, uniform(1000, 10, 0.005)).exposed_s, 0.005, 1e-9);
}

TEST(timeline, uniform_buckets_meet_the_closed_form) {
  for (const double backward : {0.5, 2.0, 10.0})
    for (const int k : {1, 2, 5, 16, 100}) {
      const double t_c = 3, alpha = 0.01;
      const Hidden hidden = hide_reductions(backward, uniform(k, backward, t_c / k + alpha));
      EXPECT_NEAR(hidden.exposed_s, exposed_of_uniform(t_c, backward, k, alpha), 1e-9)
          << backward << " s, " << k << " buckets";
    }
}

TEST(timeline, forward_waits_for_each_bucket_when_it_comes_to_it) {
  // Needed at 0, 2, 4 of 6 s. Gathers end at 3, 4, 9: waits 3; none at 5; 7 → 9.
  const std::vector<Transfer> transfers = {{0, 3}, {2, 1}, {4, 5}};
  const Hidden hidden = hide_gathers(6, transfers);
  EXPECT_DOUBLE_EQ(hidden.exposed_s, 3 + 2);
  EXPECT_DOUBLE_EQ(hidden.end_s, 11);
}

TEST(timeline, a_shared_core_slows_both_and_loses_nothing) {
  // Half speed each while both run: 2 s of transfer ready at 2 of 10 s take 4 s, compute 2 s more.
  const std::vector<Transfer> one = {{2, 2}};
  const Hidden hidden = hide_reductions(10, one, {0.5, 0.5});
  EXPECT_DOUBLE_EQ(hidden.stolen_s, 2);
  EXPECT_DOUBLE_EQ(hidden.exposed_s, 0);
  EXPECT_DOUBLE_EQ(hidden.end_s, 12);
  // What is left when compute ends runs alone, at full speed.
  const std::vector<Transfer> late = {{9, 5}};
  const Hidden tail = hide_reductions(10, late, {0.5, 0.5});
  EXPECT_DOUBLE_EQ(tail.stolen_s, 1);
  EXPECT_DOUBLE_EQ(tail.exposed_s, 4);
  EXPECT_DOUBLE_EQ(tail.end_s, 15);
  EXPECT_DOUBLE_EQ(tail.wire_s, 2 + 4);  // half speed for 2 s, then alone
}

TEST(timeline, bounds_and_monotonicity_hold_for_random_buckets) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int round = 0; round < 500; ++round) {
    const double compute = 5 * unit(random);
    std::vector<Transfer> transfers;
    double at = 0;
    for (int i = 0; i < 12; ++i) {
      at = std::min(compute, at + unit(random));
      transfers.push_back({at, unit(random)});
    }
    const Pace pace{0.5 + unit(random) / 2, 0.5 + unit(random) / 2};
    for (const auto hide : {hide_reductions, hide_gathers}) {
      const Hidden hidden = hide(compute, transfers, {});
      EXPECT_GE(hidden.exposed_s, -1e-12);
      EXPECT_LE(hidden.exposed_s, hidden.wire_s + 1e-9);
      EXPECT_GE(hidden.end_s, std::max(compute, hidden.wire_s) - 1e-9);
      EXPECT_NEAR(hidden.end_s, compute + hidden.exposed_s, 1e-9);
      // Slower transfers, or a core that is shared, never end earlier.
      auto slower = transfers;
      slower[static_cast<std::size_t>(round) % 12].seconds += 0.3;
      EXPECT_GE(hide(compute, slower, {}).end_s, hidden.end_s - 1e-9);
      EXPECT_GE(hide(compute, transfers, pace).end_s, hidden.end_s - 1e-9);
    }
  }
}

TEST(step_prediction, without_overlap_everything_adds_up) {
  StepShape shape;
  shape.first_forward_s = 2;
  shape.last_backward_s = 4;
  shape.other_s = 6;
  shape.update_s = 1;
  shape.control_s = 0.5;
  shape.overlap_reductions = shape.overlap_gathers = false;
  const std::vector<Transfer> reductions = {{2, 1}, {4, 1}};
  const std::vector<Transfer> gathers = {{0, 0.25}, {1, 0.25}};
  const StepPrediction step = predict_step(shape, reductions, gathers);
  EXPECT_DOUBLE_EQ(step.step_s, 2 + 4 + 6 + 1 + 0.5 + 2 + 0.5);
  EXPECT_DOUBLE_EQ(step.exposed_s, 3);
  EXPECT_DOUBLE_EQ(step.wire_s, 3);
  EXPECT_DOUBLE_EQ(step.hidden, 0);
  // Overlap can save min(forward, gathers) + min(backward, reductions).
  EXPECT_DOUBLE_EQ(step.most_gain, 2.5 / 16);
}

TEST(step_prediction, with_overlap_the_tail_and_the_first_gather_stay) {
  StepShape shape;
  shape.first_forward_s = 2;
  shape.last_backward_s = 4;
  shape.update_s = 1;
  const std::vector<Transfer> reductions = {{2, 1}, {4, 1}};
  const std::vector<Transfer> gathers = {{0, 0.25}, {1, 0.25}};
  const StepPrediction step = predict_step(shape, reductions, gathers);
  EXPECT_DOUBLE_EQ(step.exposed_s, 1 + 0.25);
  EXPECT_DOUBLE_EQ(step.step_s, 8.25);
  EXPECT_DOUBLE_EQ(step.bound_s, 2 + 4 + 1 + 1);
}

TEST(step_prediction, gathers_that_start_during_the_update_are_exposed_less) {
  StepShape shape;
  shape.first_forward_s = 2;
  shape.last_backward_s = 4;
  shape.update_s = 1;
  const std::vector<Transfer> gathers = {{0, 0.25}, {1, 0.25}};
  shape.head_start_s = 0.2;
  const StepPrediction step = predict_step(shape, {}, gathers);
  EXPECT_NEAR(step.exposed_s, 0.05, 1e-12);
  EXPECT_NEAR(step.step_s, 7.05, 1e-12);
}

}  // namespace
}  // namespace tutti::plan
