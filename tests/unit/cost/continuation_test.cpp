// Values that grow in a way of their own are continued without being told which.
#include "cost/continuation.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace tutti::cost {
namespace {

double guess(double (*f)(double), int ranks, int per_host = 1) {
  const auto fewer = fewer_ranks(ranks, per_host);
  return continued({f(fewer[0]), f(fewer[1]), f(fewer[2])}, fewer, ranks);
}

TEST(Continuation, lines_roots_logarithms_and_limits_are_met) {
  for (const int ranks : {300, 1000, 4096, 24576}) {
    const double n = ranks;
    EXPECT_NEAR(guess([](double p) { return 3 + 2 * (p - 1); }, ranks), 3 + 2 * (n - 1), 1e-6 * n);
    EXPECT_NEAR(guess([](double p) { return std::sqrt(p); }, ranks), std::sqrt(n), 1e-6 * n);
    EXPECT_NEAR(guess([](double p) { return 5 * std::log2(p); }, ranks), 5 * std::log2(n), 1e-6);
    EXPECT_NEAR(guess([](double p) { return (p - 1) / p; }, ranks), (n - 1) / n, 1e-6);
    EXPECT_EQ(guess([](double) { return 7.0; }, ranks), 7);
  }
}

TEST(Continuation, what_falls_is_not_continued_below_its_last_value_by_more_than_it_fell) {
  // A negative ratio, or one beyond a factor of four, is a slip of the samples.
  EXPECT_EQ(continued({1, 2, 1}, {8, 32, 128}, 512), 1);
  EXPECT_EQ(continued({0, 1, 9}, {8, 32, 128}, 512), 9 + 4 * 8);
}

TEST(Continuation, powers_of_two_stay_powers_of_two_and_others_do_not_become_one) {
  for (const int per_host : {1, 2, 6, 8}) {
    for (const int ranks : {512, 4096})
      for (const int fewer : fewer_ranks(ranks, per_host)) {
        EXPECT_TRUE(std::has_single_bit(static_cast<unsigned>(fewer))) << fewer;
        EXPECT_GT(fewer, per_host);
      }
    for (const int ranks : {600, 24576})
      for (const int fewer : fewer_ranks(ranks, per_host)) {
        EXPECT_FALSE(std::has_single_bit(static_cast<unsigned>(fewer))) << fewer;
        EXPECT_EQ(fewer % per_host, 0);
      }
  }
}

}  // namespace
}  // namespace tutti::cost
