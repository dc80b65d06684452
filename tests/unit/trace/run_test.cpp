#include "trace/run.hpp"

#include <gtest/gtest.h>

#include "unit/trace/handmade.hpp"

namespace tutti::trace {
namespace {

TEST(align_clocks, ranks_of_one_clock_are_left_as_they_are) {
  const std::vector<RankTrace> ranks = {HandMade(0, 2).collective(1, 0, 0, 10),
                                        HandMade(1, 2).collective(1, 500, 500, 510)};
  const auto found = align_clocks(ranks);
  EXPECT_EQ(found[1].offset_ns, 0);
  EXPECT_EQ(found[1].uncertainty_ns, 0);
}

// Rank 1's clock is a million behind. By rank 0's it began at 3 and ended at 11, so the bounds are
// what the tightest operation leaves.
TEST(align_clocks, collectives_bound_the_offset_of_another_host) {
  constexpr std::int64_t kBehind = 1'000'000;
  HandMade first(0, 2, "a"), second(1, 2, "b");
  for (int i = 0; i < 10; ++i) {
    const std::int64_t at = 1000 * i;
    first.collective(static_cast<std::uint64_t>(i + 1), at, at, at + 20);
    second.collective(static_cast<std::uint64_t>(i + 1), at + 5 - kBehind, at + 5 - kBehind,
                      at + 18 - kBehind);
  }
  const std::vector<RankTrace> ranks = {first, second};
  const auto found = align_clocks(ranks);
  // end₁ + c ≥ begin₀: c ≥ 10⁶ − 18; end₀ ≥ begin₁ + c: c ≤ 10⁶ + 15.
  EXPECT_EQ(found[1].uncertainty_ns, 33 / 2);
  EXPECT_NEAR(static_cast<double>(found[1].offset_ns), kBehind, 17);
}

TEST(align_clocks, what_the_job_has_measured_is_believed_within_the_bounds) {
  HandMade first(0, 2, "a"), second(1, 2, "b");
  first.collective(1, 0, 0, 1000).trace().clock_offset = 0;
  second.collective(1, 5000, 5000, 6000).trace().clock_offset = -5123;
  std::vector<RankTrace> ranks = {first, second};
  EXPECT_EQ(align_clocks(ranks)[1].offset_ns, -5123);
  ranks[1].clock_offset = -9999;  // impossible: it would have ended before rank 0 began
  EXPECT_EQ(align_clocks(ranks)[1].offset_ns, -6000);
}

TEST(align_clocks, without_a_common_collective_the_wall_clock_counts_and_nothing_bounds_it) {
  HandMade first(0, 2, "a"), second(1, 2, "b");
  first.trace().unix_time_ns = 1'000'000;
  first.trace().time_ns = 400;
  second.trace().unix_time_ns = 1'000'500;
  second.trace().time_ns = 100;
  const std::vector<RankTrace> ranks = {first, second};
  EXPECT_EQ(align_clocks(ranks)[1].offset_ns, (1'000'500 - 100) - (1'000'000 - 400));
  EXPECT_EQ(align_clocks(ranks)[1].uncertainty_ns, -1);
}

TEST(align_clocks, a_third_host_is_reached_through_the_second) {
  HandMade a(0, 3, "a"), b(1, 3, "b"), c(2, 3, "c");
  a.collective(1, 0, 0, 10);
  b.collective(1, 100, 100, 110).collective(2, 200, 200, 210);
  c.collective(2, 1200, 1200, 1210);
  const std::vector<RankTrace> ranks = {a, b, c};
  const auto found = align_clocks(ranks);
  EXPECT_NEAR(static_cast<double>(found[1].offset_ns), -100, 10);
  EXPECT_NEAR(static_cast<double>(found[2].offset_ns), -1100, 20);
}

TEST(make_run, times_are_on_the_first_ranks_clock) {
  HandMade first(0, 2, "a"), second(1, 2, "b");
  first.collective(1, 0, 0, 10);
  second.collective(1, 998, 1000, 1010).wait(1, 1002, 1010).step(1, 990, 1020);
  auto run = make_run({second, first}, "");
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->ranks[0].rank, 0);
  const RankTrace& moved = run->ranks[1];
  EXPECT_NEAR(static_cast<double>(moved.collectives[0].begin), 0, 10);
  EXPECT_EQ(moved.collectives[0].begin - static_cast<std::int64_t>(moved.collectives[0].origin), 2);
  EXPECT_EQ(moved.waits[0].begin - moved.collectives[0].begin, 2);
  EXPECT_EQ(run->begin_ns, moved.steps[0].begin);
  EXPECT_TRUE(run->missing.empty());
}

TEST(make_run, jobs_and_ranks_that_do_not_fit_together_are_refused) {
  RankTrace first = HandMade(0, 2), other = HandMade(1, 2);
  other.job = "another";
  auto mixed = make_run({first, other}, "", "d");
  ASSERT_FALSE(mixed.ok());
  EXPECT_EQ(mixed.status().code(), Code::invalid_argument);
  EXPECT_NE(mixed.status().message().find("rank-1"), std::string::npos);
  auto chosen = make_run({first, other}, "job", "d");
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->missing, std::vector<int>{1});
  EXPECT_FALSE(make_run({first, first}, "").ok());
  EXPECT_FALSE(make_run({first, HandMade(1, 3)}, "").ok());
}

}  // namespace
}  // namespace tutti::trace
