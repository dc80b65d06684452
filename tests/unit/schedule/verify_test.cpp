// What the verifier says about schedules written by hand.
#include "schedule/verify.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedule/passes.hpp"
#include "schedule/text.hpp"
#include "worlds.hpp"

namespace tutti::schedule {
namespace {

using testing::HasSubstr;

std::string fault_of(const std::string& text) {
  const auto programs = parse(text);
  EXPECT_TRUE(programs.ok()) << programs.status().to_string();
  if (!programs.ok()) return {};
  const auto report = verify(*programs);
  return report.ok() ? "none" : report.status().message();
}

std::vector<Program> world_of(Algorithm algorithm, Request request, Mode mode) {
  auto world = build_world(algorithm, request, mode);
  EXPECT_TRUE(world.ok()) << world.status().to_string();
  return *std::move(world);
}

TEST(Verify, reports_the_formula_the_steps_and_the_messages) {
  const auto ring = verify(world_of(Algorithm::ring, {.size = 4}, Mode::in_place));
  ASSERT_TRUE(ring.ok());
  EXPECT_EQ(ring->expression, "finish[[[x0 x1] x2] x3]");
  EXPECT_EQ(ring->steps, 6u);
  EXPECT_EQ(ring->messages, 24u);
  EXPECT_FALSE(ring->rank_ordered || ring->tree_ordered || ring->whole_folds);

  const auto direct = verify(world_of(Algorithm::direct, {.size = 4}, Mode::in_place));
  ASSERT_TRUE(direct.ok());
  EXPECT_EQ(direct->expression, "finish[x0 x1 x2 x3]");
  EXPECT_EQ(direct->steps, 2u);
  EXPECT_TRUE(direct->rank_ordered && direct->whole_folds);
  EXPECT_FALSE(direct->tree_ordered);
}

TEST(Verify, costs_are_those_of_the_textbook) {
  const auto steps = [](Collective collective, Algorithm algorithm, int n) {
    const auto report =
        verify(world_of(algorithm, {.collective = collective, .size = n}, Mode::in_place));
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return report.ok() ? report->steps : 0;
  };
  for (int k = 1; k <= 6; ++k) {
    const int n = 1 << k;
    const auto lg = static_cast<std::uint32_t>(k), ranks = static_cast<std::uint32_t>(n);
    EXPECT_EQ(steps(Collective::broadcast, Algorithm::binomial_tree, n), lg);
    EXPECT_EQ(steps(Collective::reduce, Algorithm::binomial_tree, n), lg);
    EXPECT_EQ(steps(Collective::all_reduce, Algorithm::recursive_doubling, n), lg);
    EXPECT_EQ(steps(Collective::all_reduce, Algorithm::halving_doubling, n), 2 * lg);
    EXPECT_EQ(steps(Collective::all_reduce, Algorithm::ring, n), 2 * (ranks - 1));
    EXPECT_EQ(steps(Collective::all_gather, Algorithm::hypercube, n), lg);
    EXPECT_EQ(steps(Collective::all_gather, Algorithm::bruck, n), lg);
    EXPECT_EQ(steps(Collective::all_to_all, Algorithm::bruck, n), lg);
    EXPECT_EQ(steps(Collective::all_gather, Algorithm::ring, n), ranks - 1);
    EXPECT_EQ(steps(Collective::barrier, Algorithm::recursive_doubling, n), lg);
  }
}

// Two ranks that overwrite in place what they are sending: neither send can end.
TEST(Verify, a_crossed_exchange_into_the_same_chunk_is_a_deadlock) {
  EXPECT_THAT(fault_of("program all_to_all direct rank 0 of 2 root 0 cut 1 in_place\n"
                       "  @0 send input[1] -> 1\n  @0 recv output[1] <- 1\n"
                       "program all_to_all direct rank 1 of 2 root 0 cut 1 in_place\n"
                       "  @0 send input[0] -> 0\n  @0 recv output[0] <- 0\n"),
              HasSubstr("deadlock"));
}

TEST(Verify, ops_without_hazards_may_overtake_each_other) {
  EXPECT_EQ(fault_of("program all_gather direct rank 0 of 2 root 0 cut 1 in_place\n"
                     "  @0 send input[0] -> 1\n  @0 recv output[1] <- 1\n"
                     "program all_gather direct rank 1 of 2 root 0 cut 1 in_place\n"
                     "  @0 send input[0] -> 0\n  @0 recv output[0] <- 0\n"),
            "none");
}

TEST(Verify, a_chunk_read_before_it_was_written_is_named) {
  EXPECT_THAT(fault_of("program broadcast linear rank 0 of 2 root 0 cut 1\n  scratch 0\n"
                       "  @0 send scratch[0] -> 1\n"
                       "program broadcast linear rank 1 of 2 root 0 cut 1\n"
                       "  @0 recv output[0] <- 0\n"),
              HasSubstr("rank 0, op 0 '@0 send scratch[0] -> 1' reads chunk 0 before"));
}

TEST(Verify, messages_of_different_extent_do_not_meet) {
  EXPECT_THAT(fault_of("program scatter linear rank 0 of 2 root 0 cut 1\n"
                       "  @0 copy output[0] = input[0]\n  @0 send input[0] -> 1\n"
                       "program scatter linear rank 1 of 2 root 0 cut 1\n"
                       "  @0 recv output[0] <- 0\n"),
              HasSubstr("do not agree on the size"));
}

TEST(Verify, an_unfinished_sum_is_no_result) {
  EXPECT_THAT(fault_of("program reduce linear rank 0 of 2 root 0 cut 1\n  scratch 0\n"
                       "  @0 reduce scratch[0] = raw 1@0 + raw input[0]\n"
                       "  @0 copy output[0] = scratch[0]\n"
                       "program reduce linear rank 1 of 2 root 0 cut 1\n"
                       "  @0 send input[0] -> 0\n"),
              HasSubstr("was not finished"));
}

TEST(Verify, ranks_that_sum_in_another_order_are_noticed) {
  EXPECT_THAT(fault_of("program all_reduce direct rank 0 of 2 root 0 cut 1\n"
                       "  @0 send input[0] -> 1\n"
                       "  @0 reduce output[0] = raw 1@0 + raw input[0] finish\n"
                       "program all_reduce direct rank 1 of 2 root 0 cut 1\n"
                       "  @0 send input[0] -> 0\n"
                       "  @0 reduce output[0] = raw 0@0 + raw input[0] finish\n"),
              HasSubstr("another formula"));
}

TEST(Verify, the_first_output_of_an_exclusive_scan_is_left_alone) {
  EXPECT_THAT(fault_of("program exclusive_scan linear rank 0 of 2 root 0 cut 1\n"
                       "  @0 send input[0] -> 1\n  @0 copy output[0] = input[0]\n"
                       "program exclusive_scan linear rank 1 of 2 root 0 cut 1\n"
                       "  @0 reduce output[0] = raw 0@0 finish\n"),
              HasSubstr("must stay as it is"));
}

TEST(Verify, a_barrier_that_lets_somebody_through_early_is_noticed) {
  // Rank 0 answers rank 1 before rank 2 has come.
  EXPECT_THAT(fault_of("program barrier linear rank 0 of 3 root 0 cut 1\n  scratch 0 0\n"
                       "  @0 recv scratch[0] <- 1\n  @2 send scratch[0] -> 1\n"
                       "  @1 recv scratch[1] <- 2\n  @3 send scratch[1] -> 2\n"
                       "program barrier linear rank 1 of 3 root 0 cut 1\n  scratch 0\n"
                       "  @0 send scratch[0] -> 0\n  @2 recv scratch[0] <- 0\n"
                       "program barrier linear rank 2 of 3 root 0 cut 1\n  scratch 0\n"
                       "  @1 send scratch[0] -> 0\n  @3 recv scratch[0] <- 0\n"),
              HasSubstr("rank 1 may leave the barrier before rank 2 comes"));
}

TEST(Verify, an_out_of_place_program_does_not_pass_as_in_place) {
  auto world = world_of(Algorithm::direct, {.collective = Collective::all_to_all, .size = 3},
                        Mode::out_of_place);
  for (Program& program : world) program.in_place = true;
  EXPECT_FALSE(verify(world).ok());
  world =
      world_of(Algorithm::ring, {.collective = Collective::all_gather, .size = 3}, Mode::in_place);
  for (Program& program : world) program.in_place = false;
  EXPECT_FALSE(verify(world).ok());
}

TEST(Verify, programs_that_do_not_belong_together_are_noticed) {
  auto world = world_of(Algorithm::ring, {.size = 3}, Mode::in_place);
  auto other = world;
  other.pop_back();
  EXPECT_FALSE(verify(other).ok());
  other = world;
  other[1].cut = 5;
  EXPECT_FALSE(verify(other).ok());
  other = world;
  other[1].root = 1;
  EXPECT_FALSE(verify(other).ok());
  EXPECT_FALSE(verify(std::span<const Program>()).ok());
}

}  // namespace
}  // namespace tutti::schedule
