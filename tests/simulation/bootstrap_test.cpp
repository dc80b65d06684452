// Ranks by the thousand meet in the store and make their first links, in virtual time.
#include <gtest/gtest.h>

#include "simulation/bootstrap_world.hpp"

namespace tutti::simulation {
namespace {

TEST(SimulatedBootstrap, brings_any_number_of_ranks_together) {
  for (const int ranks : {1, 2, 3, 16, 17, 18, 100, 129, 273, 2200}) {
    const Bootstrapped outcome = simulate_bootstrap(ranks);
    EXPECT_EQ(outcome.broken, "") << ranks << " ranks";
  }
}

TEST(SimulatedBootstrap, costs_each_rank_no_more_than_the_logarithm) {
  const Bootstrapped few = simulate_bootstrap(256);
  const Bootstrapped many = simulate_bootstrap(1024);
  std::printf("%s\n%s\n", few.text().c_str(), many.text().c_str());
  EXPECT_EQ(few.broken, "");
  EXPECT_EQ(many.broken, "");
  EXPECT_LE(few.most_links, 16);
  EXPECT_LE(many.most_links, 20);
  EXPECT_LE(many.most_requests, few.most_requests + 2);
  EXPECT_LT(many.store.requests, 1024 * 12);
  // 205 bytes of each rank, told to 16 of 128 hosts, and three times on their way up: 4 MB, not 27.
  EXPECT_LT(many.store.bytes, 6e6);
  EXPECT_LT(many.took, std::chrono::seconds(1));
  EXPECT_LT(many.link_messages, 1024 * 15 * 10);
}

}  // namespace
}  // namespace tutti::simulation
