// The control vector of all ranks, summed as an all_reduce does it.
#include "train/control.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

namespace tutti::train {
namespace {

struct World {
  std::vector<Control> ranks;
  World(int n, std::size_t parameters) {
    for (int rank = 0; rank < n; ++rank) ranks.emplace_back(rank, n, parameters);
  }
  Control& operator[](int rank) { return ranks[static_cast<std::size_t>(rank)]; }
  // Everybody has the sum.
  void all_reduce() {
    std::vector<std::int64_t> sum(ranks[0].vector().size());
    for (auto& rank : ranks)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += rank.vector()[i];
    for (auto& rank : ranks) std::copy(sum.begin(), sum.end(), rank.vector().begin());
  }
};

class ControlOfRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ControlOfRanks, testing::Values(1, 3, 64, 65, 1000, 65'536),
                         [](const auto& test) { return std::to_string(test.param); });

TEST_P(ControlOfRanks, adds_up_norms_and_tokens) {
  const int n = GetParam();
  World world(n, 5);
  for (int rank = 0; rank < n; ++rank) {
    ExactSum norm;
    norm.add(1 + rank % 7);
    norm.add(std::ldexp(1.0, -200));
    world[rank].set_norm(norm);
    world[rank].set_tokens(1'000'000'000 + rank);
  }
  world.all_reduce();
  ExactSum expected;
  std::int64_t tokens = 0;
  for (int rank = 0; rank < n; ++rank) {
    expected.add(1 + rank % 7);
    expected.add(std::ldexp(1.0, -200));
    tokens += 1'000'000'000 + rank;
  }
  for (const int rank : {0, n / 2, n - 1}) {
    EXPECT_EQ(world[rank].norm().value(), expected.value());
    EXPECT_EQ(world[rank].tokens(), tokens);
    EXPECT_TRUE(world[rank].slot_faults().empty());
    EXPECT_FALSE(world[rank].stop());
  }
}

TEST_P(ControlOfRanks, one_that_wants_to_stop_is_heard_by_all) {
  const int n = GetParam();
  World world(n, 5);
  world[n - 1].set_stop();
  world.all_reduce();
  for (const int rank : {0, n / 2, n - 1}) EXPECT_TRUE(world[rank].stop());
}

TEST_P(ControlOfRanks, counts_who_used_each_parameter) {
  const int n = GetParam();
  constexpr std::size_t kParameters = 131;  // more than a word's worth for every field width
  World world(n, kParameters);
  std::mt19937 random(4);
  std::vector<int> expected(kParameters);
  const auto use = [&](int rank, std::size_t parameter) {
    world[rank].set_used(parameter);
    world[rank].set_used(parameter);  // counts once
    ++expected[parameter];
  };
  for (int rank = 0; rank < n; ++rank) {
    use(rank, 0);  // everybody: the fullest field beside an empty one
    use(rank, 2);
    use(rank, kParameters - 1);
    const std::size_t any = 3 + random() % (kParameters - 4);
    use(rank, any);
  }
  world.all_reduce();
  for (std::size_t parameter = 0; parameter < kParameters; ++parameter)
    EXPECT_EQ(world[n - 1].used_by(parameter), expected[parameter]) << "parameter " << parameter;
}

TEST_P(ControlOfRanks, names_a_single_fault_on_every_rank) {
  const int n = GetParam();
  const std::set<int> culprits = {0, n / 2, n - 1};
  for (const int culprit : culprits)
    for (const bool after : {false, true}) {
      World world(n, 100);
      world[culprit].set_gradient_fault(99, after);
      world.all_reduce();
      for (const int rank : culprits) {
        const auto findings = world[rank].slot_faults();
        ASSERT_EQ(findings.size(), 1U);
        EXPECT_EQ(findings[0].rank, culprit);
        EXPECT_FALSE(findings[0].is_loss);
        EXPECT_EQ(findings[0].after_reduction, after);
        EXPECT_EQ(findings[0].parameter, 99U);
      }
    }
}

TEST_P(ControlOfRanks, a_fault_of_everybody_does_not_spill_into_anything_else) {
  const int n = GetParam();
  constexpr std::size_t kParameters = 1000;
  World world(n, kParameters);
  for (int rank = 0; rank < n; ++rank) {
    world[rank].set_gradient_fault(kParameters - 1, true);
    world[rank].set_tokens(1);
    world[rank].set_used(0);
  }
  world.all_reduce();
  const auto findings = world[0].slot_faults();
  ASSERT_EQ(findings.size(), static_cast<std::size_t>(std::min(n, 64)));
  for (std::size_t slot = 0; slot < findings.size(); ++slot) {
    const bool alone = static_cast<int>(slot) + 64 >= n;
    EXPECT_EQ(findings[slot].rank, alone ? static_cast<int>(slot) : -1);
    EXPECT_EQ(findings[slot].parameter.has_value(), alone);
  }
  EXPECT_EQ(world[0].tokens(), n);
  EXPECT_EQ(world[0].used_by(0), n);
  EXPECT_EQ(world[0].used_by(1), 0);
  EXPECT_EQ(world[0].norm().value(), 0);
}

TEST(Control, several_faults_are_all_named) {
  World world(3, 10);
  world[0].set_loss_fault();
  world[2].set_gradient_fault(0, false);
  world.all_reduce();
  const auto findings = world[1].slot_faults();
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].rank, 0);
  EXPECT_TRUE(findings[0].is_loss);
  EXPECT_FALSE(findings[0].parameter);
  EXPECT_EQ(findings[1].rank, 2);
  EXPECT_FALSE(findings[1].is_loss);
  EXPECT_EQ(findings[1].parameter, 0U);
}

TEST(Control, the_first_fault_of_a_rank_counts) {
  World world(2, 10);
  world[1].set_gradient_fault(7, false);
  world[1].set_gradient_fault(3, true);
  world[1].set_loss_fault();
  world.all_reduce();
  const auto findings = world[0].slot_faults();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].parameter, 7U);
  EXPECT_FALSE(findings[0].is_loss);
  EXPECT_FALSE(findings[0].after_reduction);
}

TEST(Control, two_ranks_in_one_slot_are_not_named_and_hide_nobody_else) {
  World world(200, 10);
  world[5].set_loss_fault();
  world[5 + 64].set_gradient_fault(9, true);
  world[6 + 128].set_gradient_fault(2, false);
  world.all_reduce();
  const auto findings = world[0].slot_faults();
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].rank, -1);
  EXPECT_FALSE(findings[0].parameter);
  EXPECT_EQ(findings[1].rank, 134);
  EXPECT_EQ(findings[1].parameter, 2U);
}

TEST(Control, a_cleared_one_says_nothing_and_can_be_told_again) {
  Control control(0, 1, 3);
  ExactSum norm;
  norm.add(4);
  control.set_norm(norm);
  control.set_tokens(7);
  control.set_used(1);
  control.set_loss_fault();
  control.set_stop();
  control.clear();
  EXPECT_EQ(control.norm().value(), 0);
  EXPECT_EQ(control.tokens(), 0);
  EXPECT_EQ(control.used_by(1), 0);
  EXPECT_FALSE(control.stop());
  EXPECT_TRUE(control.slot_faults().empty());
  control.set_gradient_fault(2, false);
  ASSERT_EQ(control.slot_faults().size(), 1U);
  EXPECT_EQ(control.slot_faults()[0].parameter, 2U);
}

TEST(Control, works_without_any_parameter) {
  Control control(0, 1, 0);
  control.set_tokens(3);
  EXPECT_EQ(control.tokens(), 3);
}

}  // namespace
}  // namespace tutti::train
