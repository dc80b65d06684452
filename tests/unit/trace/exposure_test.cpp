#include "trace/exposure.hpp"

#include <gtest/gtest.h>

#include "unit/trace/handmade.hpp"

namespace tutti::trace {
namespace {

Analysis analysis_of(std::vector<RankTrace> ranks) {
  auto run = make_run(std::move(ranks), "");
  EXPECT_TRUE(run.ok()) << run.status().message();
  return analyse(*run);
}

Causes causes_of(const Analysis& analysis, int rank) {
  Causes all{};
  for (const Wait& wait : analysis.waits)
    if (wait.rank == rank)
      for (std::size_t c = 0; c < kCauses; ++c) all[c] += wait.causes[c];
  return all;
}

void expect_causes(const Causes& got, double straggler, double queued, double slow, double late) {
  EXPECT_EQ(got[0], straggler);
  EXPECT_EQ(got[1], queued);
  EXPECT_EQ(got[2], slow);
  EXPECT_EQ(got[3], late);
}

// Rank 0 is there at 0 and waits; rank 1 joins at 100; it then takes 20, as predicted.
TEST(exposure, waiting_for_a_rank_that_joins_late_is_the_stragglers) {
  const auto analysis =
      analysis_of({HandMade(0, 2).collective(1, 0, 0, 120, 20).wait(1, 10, 120),
                   HandMade(1, 2).collective(1, 100, 100, 120, 20).wait(1, 105, 120)});
  EXPECT_EQ(analysis.operations.at(0).last_rank, 1);
  EXPECT_EQ(analysis.named.at(0).straggler, 1);
  expect_causes(causes_of(analysis, 0), 90, 0, 0, 20);
  expect_causes(causes_of(analysis, 1), 0, 0, 0, 15);
}

// Both joined at 0, but the one before it is under way until 50.
TEST(exposure, what_stands_behind_an_earlier_collective_is_queued) {
  const auto one = [](int rank) {
    return HandMade(rank, 2)
        .collective(1, 0, 0, 50, 50)
        .collective(2, 0, 50, 80, 30)
        .wait(2, 10, 80);
  };
  const auto analysis = analysis_of({one(0), one(1)});
  expect_causes(causes_of(analysis, 0), 0, 40, 0, 30);
}

// Predicted 20, took 100: 30 are within what is expected, the rest is the link's.
TEST(exposure, what_takes_longer_than_predicted_is_a_slow_link) {
  const auto one = [](int rank) {
    return HandMade(rank, 2).collective(1, 0, 0, 100, 20).wait(1, 0, 100);
  };
  expect_causes(causes_of(analysis_of({one(0), one(1)}), 0), 0, 0, 70, 30);
}

TEST(exposure, what_goes_as_expected_was_ready_too_late) {
  const auto one = [](int rank) {
    return HandMade(rank, 2).collective(1, 0, 0, 100, 100).wait(1, 60, 100);
  };
  expect_causes(causes_of(analysis_of({one(0), one(1)}), 0), 0, 0, 0, 40);
}

// Without predictions the like of it sets what is expected: four took 10, the fifth 100.
TEST(exposure, without_a_prediction_its_like_are_the_measure) {
  const auto one = [](int rank) {
    HandMade made(rank, 2);
    for (int i = 0; i < 4; ++i)
      made.collective(static_cast<std::uint64_t>(i + 1), 200 * i, 200 * i, 200 * i + 10);
    return made.collective(5, 1000, 1000, 1100).wait(5, 1000, 1100);
  };
  expect_causes(causes_of(analysis_of({one(0), one(1)}), 0), 0, 0, 85, 15);
}

TEST(exposure, the_causes_of_a_wait_add_up_to_it) {
  const auto analysis =
      analysis_of({HandMade(0, 2).collective(1, 3, 40, 120, 11).wait(1, 5, 131),
                   HandMade(1, 2).collective(1, 27, 66, 117, 11).wait(1, 30, 121)});
  for (const Wait& wait : analysis.waits)
    EXPECT_DOUBLE_EQ(wait.causes[0] + wait.causes[1] + wait.causes[2] + wait.causes[3],
                     static_cast<double>(wait.end - wait.begin));
}

// Compute [0,60) and [80,100) after the wait is cut out; communication [20,80).
TEST(exposure, overlap_is_the_share_of_communication_beside_compute) {
  const auto analysis = analysis_of({HandMade(0, 1)
                                         .compute("forward", 0, 100)
                                         .wait(1, 60, 80)
                                         .collective(1, 20, 20, 80, 10)
                                         .step(4, 0, 100)});
  EXPECT_DOUBLE_EQ(analysis.ranks.at(0).overlap(), 40.0 / 60.0);
  ASSERT_EQ(analysis.steps.size(), 1u);
  const RankStep& step = analysis.steps[0].ranks.at(0);
  EXPECT_EQ(analysis.steps[0].number, 4);
  EXPECT_EQ(step.compute_ns, 80);
  EXPECT_EQ(step.wait_ns, 20);
  EXPECT_EQ(step.exposed_ns(), 20);
}

TEST(exposure, a_wait_belongs_to_the_step_in_which_it_began) {
  const auto analysis = analysis_of({HandMade(0, 1)
                                         .step(1, 0, 100)
                                         .step(2, 110, 200)
                                         .collective(1, 0, 0, 50, 50)
                                         .collective(2, 90, 90, 150, 60)
                                         .wait(1, 40, 50)
                                         .wait(2, 120, 150)
                                         .wait(2, 102, 105)});
  EXPECT_EQ(analysis.waits[0].step, 1);
  EXPECT_EQ(analysis.waits[1].step, 2);
  EXPECT_EQ(analysis.waits[2].step, -1);
}

TEST(exposure, a_bubble_is_no_wait) {
  const auto analysis = analysis_of({HandMade(0, 1)
                                         .step(1, 0, 100)
                                         .compute("forward 0", 0, 30)
                                         .wait(0, 30, 90)
                                         .bubble("recv_gradient 0 from stage 1", 30, 80)
                                         .bubble("before the step", -20, 0)});
  EXPECT_EQ(analysis.ranks[0].wait_ns, 10);
  EXPECT_EQ(analysis.ranks[0].bubble_ns, 70);
  const RankStep& step = analysis.steps.at(0).ranks.at(0);
  EXPECT_EQ(step.wait_ns, 10);
  EXPECT_EQ(step.exposed_ns(), 10);
  EXPECT_EQ(step.bubble_ns, 50);
}

TEST(exposure, buckets_are_listed_by_what_of_them_was_exposed) {
  const auto one = [](int rank) {
    return HandMade(rank, 2)
        .collective(1, 0, 0, 10, 10, "bucket 0")
        .collective(2, 20, 20, 60, 40, "bucket 1")
        .wait(1, 5, 10)
        .wait(2, 30, 60);
  };
  const auto analysis = analysis_of({one(0), one(1)});
  ASSERT_EQ(analysis.named.size(), 2u);
  EXPECT_EQ(analysis.named[0].name, "all_reduce bucket 1");
  EXPECT_EQ(analysis.named[0].wait_ns, 60);
  EXPECT_EQ(analysis.named[1].exposed_ns(), 10);
}

TEST(exposure, equal_calls_make_a_row_with_median_and_prediction) {
  HandMade made(0, 1);
  for (int i = 0; i < 5; ++i)
    made.collective(static_cast<std::uint64_t>(i + 1), 100 * i, 100 * i, 100 * i + 10 * (i + 1),
                    25);
  const auto analysis = analysis_of({made});
  ASSERT_EQ(analysis.rows.size(), 1u);
  EXPECT_EQ(analysis.rows[0].count, 5u);
  EXPECT_EQ(analysis.rows[0].median_ns, 30);
  EXPECT_EQ(analysis.rows[0].predicted_ns, 25);
  EXPECT_EQ(analysis.rows[0].bytes, 1024u);
}

}  // namespace
}  // namespace tutti::trace
