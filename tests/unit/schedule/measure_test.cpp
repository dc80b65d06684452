// What a schedule costs, counted off its programs, against the formulas of textbooks.
#include "schedule/measure.hpp"

#include <gtest/gtest.h>

#include <bit>

#include "schedule/verify.hpp"
#include "worlds.hpp"

namespace tutti::schedule {
namespace {

Measure measured(Collective collective, Algorithm algorithm, int n, Mode mode = Mode::in_place) {
  auto world = build_world(algorithm, {.collective = collective, .size = n}, mode);
  EXPECT_TRUE(world.ok()) << world.status().to_string();
  auto result = measure(*world);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return *result;
}

TEST(Measure, ring_all_reduce_is_two_rounds_of_n_minus_1) {
  for (int n = 2; n <= 17; ++n) {
    const Measure ring = measured(Collective::all_reduce, Algorithm::ring, n);
    const auto rounds = static_cast<std::uint32_t>(n - 1);
    EXPECT_EQ(ring.chain, 2 * rounds);
    EXPECT_EQ(ring.messages, 2 * rounds);
    EXPECT_DOUBLE_EQ(ring.bytes_share(), 2.0 * (n - 1) / n);
    EXPECT_DOUBLE_EQ(ring.folded_share(), 1.0 * (n - 1) / n);
  }
}

TEST(Measure, powers_of_two_have_logarithms) {
  for (int n = 2; n <= 64; n *= 2) {
    const auto log = static_cast<std::uint32_t>(std::countr_zero(static_cast<unsigned>(n)));
    const Measure doubling = measured(Collective::all_reduce, Algorithm::recursive_doubling, n);
    EXPECT_EQ(doubling.chain, log);
    EXPECT_DOUBLE_EQ(doubling.bytes_share(), log);
    EXPECT_DOUBLE_EQ(doubling.folded_share(), log);
    const Measure halving = measured(Collective::all_reduce, Algorithm::halving_doubling, n);
    EXPECT_EQ(halving.chain, 2 * log);
    EXPECT_DOUBLE_EQ(halving.bytes_share(), 2.0 * (n - 1) / n);
    EXPECT_DOUBLE_EQ(halving.folded_share(), 1.0 * (n - 1) / n);
    const Measure tree = measured(Collective::broadcast, Algorithm::binomial_tree, n);
    EXPECT_EQ(tree.chain, log);
    EXPECT_DOUBLE_EQ(tree.bytes_share(), log);
    EXPECT_DOUBLE_EQ(tree.folded_share(), 0);
  }
}

TEST(Measure, every_rank_of_a_double_tree_moves_the_message_twice) {
  for (int n : {4, 8, 16, 32})
    EXPECT_DOUBLE_EQ(
        measured(Collective::all_reduce, Algorithm::double_binary_tree, n).bytes_share(), 2);
}

TEST(Measure, all_gather_and_all_to_all_move_what_others_have) {
  for (int n : {2, 5, 8}) {
    EXPECT_DOUBLE_EQ(measured(Collective::all_gather, Algorithm::ring, n).bytes_share(),
                     1.0 * (n - 1) / n);
    EXPECT_DOUBLE_EQ(
        measured(Collective::all_to_all, Algorithm::pairwise, n, Mode::out_of_place).bytes_share(),
        1.0 * (n - 1) / n);
  }
}

TEST(Measure, a_barrier_moves_no_bytes) {
  const Measure barrier = measured(Collective::barrier, Algorithm::recursive_doubling, 8);
  EXPECT_EQ(barrier.chain, 3u);
  EXPECT_EQ(barrier.parts, 0u);
  EXPECT_EQ(barrier.bytes_share(), 0);
}

TEST(Measure, chains_are_those_of_the_verifier) {
  for (const Entry& entry : catalog())
    each_request(entry, 1, 8, [&](const Request& request) {
      auto world = build_world(entry.algorithm, request, Mode::mixed);
      ASSERT_TRUE(world.ok());
      const auto report = verify(*world);
      const auto counted = measure(*world);
      ASSERT_TRUE(report.ok() && counted.ok());
      EXPECT_EQ(counted->chain, report->steps);
    });
}

TEST(Measure, programs_that_do_not_fit_together_are_refused) {
  auto world = build_world(Algorithm::ring, {.collective = Collective::all_reduce, .size = 3},
                           Mode::in_place);
  ASSERT_TRUE(world.ok());
  (*world)[1].ops.erase((*world)[1].ops.begin());
  EXPECT_EQ(measure(*world).status().code(), Code::internal);
}

}  // namespace
}  // namespace tutti::schedule
