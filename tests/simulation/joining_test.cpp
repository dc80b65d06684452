// Ranks join among intruders, over connections that break, in turns that a seed chooses. A failing run prints
// its seed; TUTTI_SEED=N repeats it alone.
#include <gtest/gtest.h>

#include "simulation/joining_world.hpp"
#include "simulation/seeds.hpp"

namespace tutti::simulation {
namespace {

TEST(SimulatedJoining, links_every_pair_once_whoever_else_comes) {
  int refused = 0;
  int breaks = 0;
  int deaths = 0;
  const auto chosen = seeds("joining", 40);
  for (const std::uint64_t seed : chosen) {
    const Joined outcome = JoiningWorld(seed).run();
    for (const std::string& broken : outcome.broken) ADD_FAILURE() << broken;
    ASSERT_FALSE(HasFailure()) << "TUTTI_SEED=" << seed << "\n" << outcome.story;
    refused += outcome.refused;
    breaks += outcome.breaks;
    deaths += outcome.died;
  }
  if (chosen.size() < 20) return;
  std::printf("%d intruders were refused, %d connections broke, %d ranks died\n", refused, breaks,
              deaths);
  EXPECT_GT(refused, 20) << "too little happened to prove anything";
  EXPECT_GT(breaks, 20);
  EXPECT_GT(deaths, 3);
}

}  // namespace
}  // namespace tutti::simulation
