// What the guard does about each kind of fault, in every order that a run can bring them.
#include "tutti/train/loss_guard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tutti::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Verdict = LossGuard::Verdict;

constexpr double kNanLoss = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfiniteLoss = std::numeric_limits<double>::infinity();

StepReport report(Outcome outcome, std::vector<Fault> faults = {}) {
  StepReport report;
  report.outcome = outcome;
  report.faults = std::move(faults);
  return report;
}
const Fault kGradient{2, false, "decoder.weight", 3};
const Fault kLoss{1, true, "", -1};
const Fault kAfter{-1, false, "head.bias", 0};
const Fault kShared{-1, false, "", -1};

TEST(LossGuard, says_nothing_about_a_good_step) {
  LossGuard guard({.check_for_nan = true});
  const auto judgement = guard.judge(1, report(Outcome::updated));
  EXPECT_EQ(judgement.verdict, Verdict::go_on);
  EXPECT_EQ(judgement.text, "");
  EXPECT_TRUE(judgement.status.ok());
}

TEST(LossGuard, a_fault_that_goes_away_is_transient_counted_and_named) {
  LossGuard guard({.check_for_nan = true});
  const auto first = guard.judge(7, report(Outcome::rejected, {kGradient}));
  EXPECT_EQ(first.verdict, Verdict::recompute);
  EXPECT_TRUE(first.status.ok());
  EXPECT_THAT(first.text, AllOf(HasSubstr("step 7"), HasSubstr("rank 2"),
                                HasSubstr("'decoder.weight'"), HasSubstr("bucket 3")));
  EXPECT_EQ(guard.transient(), 0);
  const auto second = guard.judge(7, report(Outcome::updated));
  EXPECT_EQ(second.verdict, Verdict::go_on);
  EXPECT_THAT(second.text, AllOf(HasSubstr("step 7"), HasSubstr("transient"), HasSubstr("rank 2"),
                                 HasSubstr("'decoder.weight'")));
  EXPECT_EQ(guard.transient(), 1);
  EXPECT_EQ(guard.judge(8, report(Outcome::updated)).text, "");
  EXPECT_EQ(guard.transient(), 1);
}

TEST(LossGuard, steps_that_a_scale_may_yet_mend_are_counted_and_do_not_end_the_run) {
  LossGuard guard({.most_skipped = 3});
  for (int step = 1; step <= 20; ++step)
    EXPECT_EQ(guard.judge(step, report(Outcome::skipped), true).verdict, Verdict::go_on);
  EXPECT_EQ(guard.skipped(), 20);
  EXPECT_EQ(guard.judge(21, report(Outcome::skipped)).verdict, Verdict::go_on);
  EXPECT_EQ(guard.judge(22, report(Outcome::skipped)).verdict, Verdict::go_on);
  EXPECT_EQ(guard.judge(23, report(Outcome::skipped)).verdict, Verdict::stop);
}

TEST(LossGuard, a_fault_that_stays_is_persistent_and_ends_the_run_naming_everybody) {
  LossGuard guard({.check_for_nan = true});
  EXPECT_EQ(guard.judge(7, report(Outcome::rejected, {kGradient})).verdict, Verdict::recompute);
  const auto judgement = guard.judge(7, report(Outcome::rejected, {kLoss, kGradient}));
  EXPECT_EQ(judgement.verdict, Verdict::stop);
  EXPECT_EQ(judgement.status.code(), Code::aborted);
  EXPECT_EQ(judgement.status.message(), judgement.text);
  EXPECT_THAT(judgement.text,
              AllOf(HasSubstr("step 7"), HasSubstr("persistent"), HasSubstr("rank 1: loss"),
                    HasSubstr("rank 2: gradient of 'decoder.weight' (bucket 3)"),
                    HasSubstr("the first time: rank 2")));
}

TEST(LossGuard, the_same_fault_twice_is_told_once) {
  LossGuard guard({.check_for_nan = true});
  (void)guard.judge(7, report(Outcome::rejected, {kLoss}));
  EXPECT_THAT(guard.judge(7, report(Outcome::rejected, {kLoss})).text,
              Not(HasSubstr("the first time")));
}

TEST(LossGuard, steps_that_are_skipped_in_a_row_end_the_run) {
  LossGuard guard({.most_skipped = 3});
  std::int64_t step = 0;
  for (int round = 0; round < 4; ++round) {  // two and a good one, as often as you like
    EXPECT_EQ(guard.judge(++step, report(Outcome::skipped, {kGradient})).verdict, Verdict::go_on);
    EXPECT_EQ(guard.judge(++step, report(Outcome::skipped, {kGradient})).verdict, Verdict::go_on);
    EXPECT_EQ(guard.judge(++step, report(Outcome::updated)).verdict, Verdict::go_on);
  }
  EXPECT_EQ(guard.judge(20, report(Outcome::skipped, {kGradient})).verdict, Verdict::go_on);
  // A step with nothing to learn from does not tell whether it has become better.
  EXPECT_EQ(guard.judge(21, report(Outcome::empty)).verdict, Verdict::go_on);
  EXPECT_EQ(guard.judge(22, report(Outcome::skipped, {kGradient})).verdict, Verdict::go_on);
  const auto judgement = guard.judge(23, report(Outcome::skipped, {kGradient}));
  EXPECT_EQ(judgement.verdict, Verdict::stop);
  EXPECT_EQ(judgement.status.code(), Code::aborted);
  EXPECT_THAT(judgement.text, AllOf(HasSubstr("3 steps in a row"), HasSubstr("step 23"),
                                    HasSubstr("'decoder.weight'")));
  EXPECT_EQ(guard.skipped(), 11);
}

TEST(LossGuard, every_step_may_be_computed_again_once) {
  LossGuard guard({.check_for_nan = true});
  for (std::int64_t step = 1; step <= 5; ++step) {
    EXPECT_EQ(guard.judge(step, report(Outcome::rejected, {kLoss})).verdict, Verdict::recompute);
    EXPECT_EQ(guard.judge(step, report(Outcome::updated)).verdict, Verdict::go_on);
  }
  EXPECT_EQ(guard.transient(), 5);
  EXPECT_EQ(guard.skipped(), 0);
}

TEST(LossGuard, a_skipped_step_is_counted_and_told) {
  LossGuard guard({});
  const auto judgement = guard.judge(3, report(Outcome::skipped, {kAfter}));
  EXPECT_EQ(judgement.verdict, Verdict::go_on);
  EXPECT_TRUE(judgement.status.ok());
  EXPECT_THAT(judgement.text, AllOf(HasSubstr("step 3 was skipped"), HasSubstr("'head.bias'"),
                                    HasSubstr("after the reduction")));
  (void)guard.judge(4, report(Outcome::updated));
  (void)guard.judge(5, report(Outcome::skipped, {kAfter}));
  EXPECT_EQ(guard.skipped(), 2);
  EXPECT_EQ(guard.transient(), 0);
}

TEST(LossGuard, ranks_that_cannot_be_told_apart_are_said_to_be_several) {
  LossGuard guard({.check_for_nan = true});
  EXPECT_THAT(guard.judge(1, report(Outcome::rejected, {kShared})).text,
              HasSubstr("several ranks"));
}

TEST(LossGuard, a_loss_that_is_not_finite_stops_the_run_and_says_how_late_it_came) {
  for (const double bad : {kNanLoss, kInfiniteLoss, -kInfiniteLoss}) {
    LossGuard guard({.check_for_nan = true});
    const auto judgement = guard.judge_loss(41, 42, bad, {0, 2});
    EXPECT_EQ(judgement.verdict, Verdict::stop);
    EXPECT_EQ(judgement.status.code(), Code::aborted);
    EXPECT_THAT(judgement.text, AllOf(HasSubstr("step 41"), HasSubstr("ranks 0, 2"),
                                      HasSubstr("1 step late"), HasSubstr("--strict-loss-check")));
  }
  LossGuard strict({.check_for_nan = true, .strict = true});
  const auto judgement = strict.judge_loss(41, 41, kNanLoss, {3});
  EXPECT_EQ(judgement.verdict, Verdict::stop);
  EXPECT_THAT(judgement.text,
              AllOf(HasSubstr("on rank 3"), Not(HasSubstr("late")), Not(HasSubstr("--strict"))));
}

TEST(LossGuard, without_the_check_a_loss_may_be_anything) {
  LossGuard guard({.check_for_spikes = true});
  EXPECT_EQ(guard.judge_loss(1, 2, kNanLoss, {0}).verdict, Verdict::go_on);
}

TEST(LossGuard, a_spike_is_ten_times_the_largest_of_the_first_hundred_and_only_told) {
  LossGuard guard({.check_for_spikes = true});
  for (std::int64_t step = 1; step <= 100; ++step) {
    // Large ones among the first hundred are samples, not spikes; what is not finite is neither.
    EXPECT_EQ(guard.judge_loss(step, step, step == 50 ? 4.0 : 0.001, {}).text, "");
    EXPECT_EQ(guard.judge_loss(step, step, kInfiniteLoss, {}).text, "");
  }
  EXPECT_EQ(guard.judge_loss(101, 101, 39.9, {}).text, "");
  const auto judgement = guard.judge_loss(102, 103, 40.0, {});
  EXPECT_EQ(judgement.verdict, Verdict::go_on);
  EXPECT_TRUE(judgement.status.ok());
  EXPECT_THAT(judgement.text,
              AllOf(HasSubstr("step 102"), HasSubstr("40"), HasSubstr("10 times 4")));
  EXPECT_NE(guard.judge_loss(103, 103, 1e9, {}).text, "");
  // A spike does not move the yardstick.
  EXPECT_NE(guard.judge_loss(104, 104, 41.0, {}).text, "");
}

TEST(LossGuard, spikes_are_not_looked_for_unless_asked) {
  LossGuard guard({.check_for_nan = true});
  for (std::int64_t step = 1; step <= 100; ++step) (void)guard.judge_loss(step, step, 1, {});
  EXPECT_EQ(guard.judge_loss(101, 101, 1e6, {}).text, "");
}

TEST(LossGuard, goes_on_from_its_state_with_the_same_yardstick) {
  LossGuard first({.check_for_spikes = true});
  first.judge(1, report(Outcome::skipped, {kGradient}));
  for (int step = 1; step <= 60; ++step)
    EXPECT_EQ(first.judge_loss(step, step, step == 30 ? 0.1 + 0.2 : 0.01, {}).text, "");
  LossGuard second({.check_for_spikes = true});
  ASSERT_TRUE(second.restore(first.state()).ok()) << first.state();
  EXPECT_EQ(second.state(), first.state());
  EXPECT_EQ(second.skipped(), 1);
  // 40 samples more make a hundred; the largest of all is still that of step 30.
  for (int step = 61; step <= 100; ++step) second.judge_loss(step, step, 0.01, {});
  EXPECT_EQ(second.judge_loss(101, 101, 2.9, {}).text, "");
  EXPECT_THAT(second.judge_loss(102, 102, 3.1, {}).text, HasSubstr("spiky"));
}

TEST(LossGuard, refuses_a_state_that_is_none_and_stays_as_it_is) {
  LossGuard guard({});
  const std::string before = guard.state();
  for (const std::string bad : {"", "samples", "samples 1", "samples 1 largest 2 skipped 3",
                                "samples 1 largest 2 skipped 3 transient 4 more",
                                "samples x largest 2 skipped 3 transient 4"})
    EXPECT_EQ(guard.restore(bad).code(), Code::corrupt) << bad;
  EXPECT_EQ(guard.state(), before);
}

TEST(LossGuard, tells_of_a_batch_that_is_masked_as_a_whole_and_goes_on) {
  LossGuard guard({.check_for_nan = true});
  const auto judgement = guard.judge(5, report(Outcome::empty));
  EXPECT_EQ(judgement.verdict, Verdict::go_on);
  EXPECT_THAT(judgement.text, AllOf(HasSubstr("step 5"), HasSubstr("every token")));
  EXPECT_EQ(guard.skipped(), 0);
}

TEST(LossGuard, says_which_data_group_a_rank_belongs_to_where_there_are_several) {
  LossGuard guard({.check_for_nan = true});
  Fault fault = kGradient;
  fault.data_group = 6;
  EXPECT_THAT(guard.judge(7, report(Outcome::rejected, {fault})).text,
              HasSubstr("rank 2 of the data group that rank 6 of everyone is in"));
  fault.part = "pp 1, tp 0";
  LossGuard other({.check_for_nan = true});
  EXPECT_THAT(other.judge(7, report(Outcome::rejected, {fault})).text,
              HasSubstr("rank 2 of the data group of pp 1, tp 0"));
}

}  // namespace
}  // namespace tutti::train
