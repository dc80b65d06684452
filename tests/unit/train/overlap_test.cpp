// Timelines drawn by hand, whose answers can be read off. Times in ms.
#include "tutti/train/overlap.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/intervals.hpp"

namespace tutti::train {
namespace {

constexpr std::int64_t kMs = 1'000'000;

CollectiveTimes call(Collective collective, int bucket, std::int64_t joined, std::int64_t done) {
  CollectiveTimes times;
  times.collective = collective;
  times.bucket = bucket;
  times.joined = joined * kMs;
  times.done = done * kMs;
  return times;
}
CollectiveTimes waited(CollectiveTimes times, std::int64_t begin, std::int64_t end) {
  times.wait_begin = begin * kMs;
  times.wait_end = end * kMs;
  return times;
}
CollectiveTimes reduction(int bucket, std::int64_t joined, std::int64_t done) {
  return call(Collective::reduce_scatter, bucket, joined, done);
}

// forward 10 … 40, backward 40 … 100, update 110 … 115.
StepTimes step_of(std::vector<CollectiveTimes> collectives) {
  StepTimes times;
  times.begin = 10 * kMs;
  times.end = 115 * kMs;
  times.forward = times.first_forward = 30 * kMs;
  times.backward = times.last_backward = 60 * kMs;
  times.update = 5 * kMs;
  times.collectives = std::move(collectives);
  return times;
}

StepOverlap compare(std::vector<StepTimes> ranks, std::vector<std::int64_t> offsets_ms = {}) {
  offsets_ms.resize(ranks.size(), 0);
  for (std::int64_t& offset : offsets_ms) offset *= kMs;
  auto overlap = compare_times(7, ranks, offsets_ms);
  EXPECT_TRUE(overlap.ok()) << overlap.status().to_string();
  return overlap.ok() ? *overlap : StepOverlap();
}

void expect_ms(double seconds, double ms) { EXPECT_NEAR(seconds, ms / 1e3, 1e-12); }

TEST(Intervals, that_overlap_count_once) {
  EXPECT_EQ(length_of_union({}), 0);
  EXPECT_EQ(length_of_union({{5, 5}, {9, 3}}), 0);
  EXPECT_EQ(length_of_union({{0, 10}, {2, 3}, {8, 12}, {20, 21}, {12, 13}}), 14);
  EXPECT_EQ(length_of_union({{-5, -1}, {-10, -4}}), 9);
}

TEST(Overlap, of_a_step_without_collectives_hides_everything) {
  const StepOverlap step = compare({step_of({}), step_of({})});
  EXPECT_EQ(step.step, 7);
  ASSERT_EQ(step.ranks.size(), 2u);
  EXPECT_EQ(step.max.hidden, 1);
  EXPECT_EQ(step.max.wait_s, 0);
  expect_ms(step.max.step_s, 105);
  expect_ms(step.max.bound_s, 30 + 60 + 5);
}

TEST(Overlap, nobody_waited_all_is_hidden) {
  const StepTimes rank = step_of({reduction(0, 50, 70), reduction(1, 80, 95)});
  const StepOverlap step = compare({rank, rank});
  expect_ms(step.max.wire_s, 35);
  expect_ms(step.max.reduce_wire_s, 35);
  expect_ms(step.max.gather_wire_s, 0);
  expect_ms(step.max.exposed_s, 0);
  EXPECT_EQ(step.max.hidden, 1);
  expect_ms(step.max.tail_s, 15);
  expect_ms(step.max.bound_s, 30 + 60 + 5 + 15);
}

TEST(Overlap, all_exposed_hides_nothing) {
  const StepTimes rank = step_of({waited(reduction(0, 100, 110), 100, 110)});
  const StepOverlap step = compare({rank, rank});
  expect_ms(step.max.wait_s, 10);
  expect_ms(step.max.skew_s, 0);
  expect_ms(step.max.exposed_s, 10);
  expect_ms(step.max.wire_s, 10);
  EXPECT_NEAR(step.max.hidden, 0, 1e-9);
  expect_ms(step.max.tail_s, 10);
}

// Rank 1 joins 6 ms later: rank 0 waits 10, of which 6 are not the wire's fault.
TEST(Overlap, waiting_for_a_late_joiner_is_skew) {
  const StepOverlap step = compare({step_of({waited(reduction(0, 100, 110), 100, 110)}),
                                    step_of({waited(reduction(0, 106, 110), 106, 110)})});
  expect_ms(step.ranks[0].wait_s, 10);
  expect_ms(step.ranks[0].skew_s, 6);
  expect_ms(step.ranks[0].exposed_s, 4);
  expect_ms(step.ranks[0].wire_s, 4);
  expect_ms(step.ranks[1].wait_s, 4);
  expect_ms(step.ranks[1].skew_s, 0);
  expect_ms(step.ranks[1].exposed_s, 4);
  expect_ms(step.mean.wait_s, 7);
  expect_ms(step.max.wait_s, 10);
}

// A wait that ended before the last rank had joined (a failed one, say) is all skew, not more.
TEST(Overlap, skew_is_never_more_than_the_wait) {
  const StepOverlap step = compare(
      {step_of({waited(reduction(0, 60, 110), 61, 65)}), step_of({reduction(0, 100, 110)})});
  expect_ms(step.ranks[0].skew_s, 4);
  expect_ms(step.ranks[0].exposed_s, 0);
}

// Three buckets queue on one group: 50 … 70, then … 90, then … 105. Added up they would be
// 20 + 38 + 45; the wire was busy for 55.
TEST(Overlap, collectives_that_queue_do_not_count_twice) {
  const StepTimes rank = step_of(
      {reduction(0, 50, 70), reduction(1, 52, 90), waited(reduction(2, 60, 105), 100, 105)});
  const StepOverlap step = compare({rank, rank});
  expect_ms(step.max.wire_s, 55);
  expect_ms(step.max.exposed_s, 5);
  EXPECT_NEAR(step.max.hidden, 1 - 5.0 / 55, 1e-12);
  expect_ms(step.max.tail_s, 15);  // its own time: 90 … 105
  expect_ms(step.max.bound_s, 30 + 60 + 5 + 15);
}

TEST(Overlap, reductions_longer_than_backward_bound_the_step_with_their_tail_once) {
  const StepTimes rank = step_of({reduction(0, 50, 140), waited(reduction(1, 100, 150), 100, 150)});
  const StepOverlap step = compare({rank, rank});
  expect_ms(step.max.reduce_wire_s, 100);
  expect_ms(step.max.tail_s, 10);
  expect_ms(step.max.bound_s, 30 + 90 + 5 + 10);
}

// Gathers that the step before had started: on the wire since before this one began.
TEST(Overlap, gathers_belong_to_the_step_that_waits_for_them) {
  const StepTimes rank = step_of({waited(call(Collective::all_gather, 0, 2, 14), 10, 14),
                                  call(Collective::all_gather, 1, 4, 50), reduction(0, 60, 80),
                                  waited(call(Collective::all_reduce, -1, 100, 103), 100, 103)});
  const StepOverlap step = compare({rank, rank});
  expect_ms(step.max.gather_wire_s, 48);
  expect_ms(step.max.reduce_wire_s, 20);
  expect_ms(step.max.wire_s, 48 + 20 + 3);
  expect_ms(step.max.exposed_s, 4 + 3);
  expect_ms(step.max.tail_s, 20);  // the control all_reduce is nobody's bucket
  expect_ms(step.max.bound_s, 48 + 60 + 5 + 20);
}

TEST(Overlap, only_the_first_forward_and_the_last_backward_can_hide) {
  StepTimes rank = step_of(
      {call(Collective::all_gather, 0, 2, 22), reduction(0, 60, 100), reduction(1, 100, 104)});
  rank.first_forward = 10 * kMs;
  rank.last_backward = 20 * kMs;
  const StepOverlap step = compare({rank, rank});
  expect_ms(step.max.bound_s, 20 + 20 + 40 + 40 + 5 + 4);
}

// Rank 1's clock is 1,000 ms behind rank 0's; on the same clock it would be the late joiner above.
TEST(Overlap, clocks_are_compared_by_their_offsets) {
  StepTimes behind =
      step_of({waited(reduction(0, 106 - 1000, 110 - 1000), 106 - 1000, 110 - 1000)});
  behind.begin -= 1000 * kMs;
  behind.end -= 1000 * kMs;
  const StepOverlap step =
      compare({step_of({waited(reduction(0, 100, 110), 100, 110)}), behind}, {0, 1000});
  expect_ms(step.ranks[0].skew_s, 6);
  expect_ms(step.ranks[0].exposed_s, 4);
  expect_ms(step.ranks[1].wait_s, 4);
  expect_ms(step.ranks[1].skew_s, 0);
  expect_ms(step.ranks[1].wire_s, 4);
  expect_ms(step.ranks[1].step_s, 105);
}

TEST(Overlap, the_smallest_hidden_share_is_the_worst_one) {
  const StepOverlap step = compare(
      {step_of({waited(reduction(0, 90, 110), 105, 110)}), step_of({reduction(0, 90, 110)})});
  EXPECT_NEAR(step.ranks[0].hidden, 0.75, 1e-12);
  EXPECT_EQ(step.ranks[1].hidden, 1);
  EXPECT_NEAR(step.max.hidden, 0.75, 1e-12);
  EXPECT_NEAR(step.mean.hidden, 0.875, 1e-12);
}

TEST(Overlap, ranks_that_list_different_collectives_are_a_mismatch) {
  const std::vector<std::int64_t> offsets{0, 0};
  const std::vector<StepTimes> counts{step_of({reduction(0, 1, 2), reduction(1, 1, 3)}),
                                      step_of({reduction(0, 1, 2)})};
  auto result = compare_times(12, counts, offsets);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::mismatch);
  EXPECT_THAT(result.status().message(), testing::HasSubstr("step 12"));
  EXPECT_THAT(result.status().message(), testing::HasSubstr("rank 1 lists 1"));

  const std::vector<StepTimes> orders{step_of({reduction(0, 1, 2), reduction(1, 1, 3)}),
                                      step_of({reduction(0, 1, 2), reduction(2, 1, 3)})};
  result = compare_times(12, orders, offsets);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::mismatch);
  EXPECT_THAT(result.status().message(), testing::HasSubstr("bucket 2"));
}

TEST(Overlap, one_offset_per_rank_is_needed) {
  const std::vector<StepTimes> ranks{step_of({}), step_of({})};
  const std::vector<std::int64_t> offsets{0};
  EXPECT_EQ(compare_times(1, ranks, offsets).status().code(), Code::invalid_argument);
  EXPECT_EQ(compare_times(1, {}, {}).status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace tutti::train
