// How often a gradient comes is learned, and what deviates is never taken for complete too early.
#include "train/gradient_counts.hpp"

#include <gtest/gtest.h>

namespace tutti::train {
namespace {

// One backward in which each parameter's gradient comes so often; how many were complete.
std::vector<bool> backward(GradientCounts& counts, const std::vector<int>& times) {
  counts.begin_step();
  std::vector<bool> complete(times.size(), false);
  for (std::size_t i = 0; i < times.size(); ++i)
    for (int n = 0; n < times[i]; ++n)
      if (counts.add(i)) complete[i] = true;
  return complete;
}

TEST(GradientCounts, completes_nothing_before_it_has_learned) {
  GradientCounts counts(3);
  EXPECT_EQ(backward(counts, {1, 2, 0}), std::vector<bool>({false, false, false}));
  counts.learn();
  EXPECT_EQ(counts.learned(1), 2u);
  EXPECT_EQ(backward(counts, {1, 2, 0}), std::vector<bool>({true, true, false}));
}

TEST(GradientCounts, says_which_gradient_is_the_last) {
  GradientCounts counts(1);
  backward(counts, {3});
  counts.learn();
  counts.begin_step();
  EXPECT_FALSE(counts.add(0));
  EXPECT_FALSE(counts.add(0));
  EXPECT_TRUE(counts.add(0));
  EXPECT_FALSE(counts.add(0)) << "one too many is not complete again";
  EXPECT_EQ(counts.came(0), 4u);
}

TEST(GradientCounts, learns_a_parameter_when_it_is_first_used) {
  GradientCounts counts(2);
  backward(counts, {1, 0});
  counts.learn();
  EXPECT_EQ(backward(counts, {1, 2}), std::vector<bool>({true, false}));
  counts.learn();
  EXPECT_EQ(backward(counts, {1, 2}), std::vector<bool>({true, true}));
}

TEST(GradientCounts, keeps_the_larger_number_where_two_take_turns) {
  GradientCounts counts(1);
  backward(counts, {2});
  counts.learn();
  EXPECT_EQ(backward(counts, {1}), std::vector<bool>({false}));
  counts.learn();
  EXPECT_EQ(backward(counts, {2}), std::vector<bool>({true}));
  backward(counts, {5});
  counts.learn();
  EXPECT_EQ(counts.learned(0), 5u);
}

}  // namespace
}  // namespace tutti::train
