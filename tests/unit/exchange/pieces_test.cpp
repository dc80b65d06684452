#include "tutti/exchange/pieces.hpp"

#include <gtest/gtest.h>

#include <set>

#include "exchange/ring_shape.hpp"

namespace tutti::exchange {
namespace {

// α + bytes · β
TimeOfBytes line(double alpha_s, double beta_s) {
  return [=](std::size_t bytes) { return alpha_s + static_cast<double>(bytes) * beta_s; };
}

TEST(PiecePlan, cuts_where_compute_is_as_long_as_the_wire) {
  const PiecePlan plan = plan_pieces(line(1e-5, 1e-8), 1'000'000, 0.01);
  EXPECT_GT(plan.pieces, 4);
  EXPECT_NEAR(plan.one_piece_s, 0.02001, 1e-9);
  EXPECT_LT(plan.seconds, 0.0125);
  EXPECT_NEAR(plan.saved_s(), plan.one_piece_s - plan.seconds, 1e-12);
}

TEST(PiecePlan, stays_whole_where_a_message_costs_more_than_it_hides) {
  EXPECT_EQ(plan_pieces(line(1e-3, 1e-9), 1000, 1e-4).pieces, 1);
  EXPECT_EQ(plan_pieces(line(1e-5, 1e-8), 1'000'000, 0).pieces, 1);
}

TEST(PiecePlan, is_the_best_of_all_numbers_within_its_margin) {
  for (const double compute_s : {1e-4, 1e-3, 1e-2, 1e-1}) {
    const auto time = line(2e-4, 8e-9);
    const std::size_t bytes = 1 << 20;
    const PiecePlan plan = plan_pieces(time, bytes, compute_s, 16);
    for (int k = 1; k <= 16; ++k) {
      const double wire_s = time(bytes / static_cast<std::size_t>(k));
      const double part_s = compute_s / k;
      const double total_s = wire_s + (k - 1) * std::max(wire_s, part_s) + part_s;
      EXPECT_GE(total_s, 0.97 * plan.seconds) << k << " pieces, compute " << compute_s;
    }
  }
}

TEST(PiecePlan, never_asks_for_more_than_the_most) {
  EXPECT_LE(plan_pieces(line(0, 1e-8), 1'000'000, 0.01, 3).pieces, 3);
}

// Every rank meets every block once, and whom it gets a block from has had it one turn, or round, before.
TEST(RingShape, visits_every_block_once_and_takes_it_from_who_had_it) {
  for (const auto& [size, window] : {std::pair{1, 1}, {2, 2}, {5, 5}, {4, 2}, {6, 3}, {12, 4}}) {
    for (int rank = 0; rank < size; ++rank) {
      const RingShape shape{size, rank, window};
      std::set<int> met;
      for (int round = 0; round < shape.windows(); ++round)
        for (int turn = 0; turn < window; ++turn) met.insert(shape.source(round, turn));
      EXPECT_EQ(met.size(), static_cast<std::size_t>(size));
      EXPECT_EQ(shape.source(0, 0), rank);
      const RingShape inner{size, shape.inner_previous(), window};
      const RingShape outer{size, shape.outer_previous(), window};
      EXPECT_EQ(inner.inner_next(), rank);
      EXPECT_EQ(outer.outer_next(), rank);
      for (int round = 0; round < shape.windows(); ++round) {
        for (int turn = 1; turn <= window; ++turn)
          EXPECT_EQ(shape.source(round, turn), inner.source(round, turn - 1));
        EXPECT_EQ(shape.source(round + 1, 0), outer.source(round, 0));
      }
      EXPECT_EQ(inner.rank / window, rank / window) << "the inner ring stays in its window";
    }
  }
}

}  // namespace
}  // namespace tutti::exchange
