// Random programs on random groups under random trouble: every run ends, with right data or with
// the right error. A failing run prints its seed; TUTTI_SEED=N repeats it alone.
#include "simulation/simulation.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tutti::simulation {
namespace {

// Per fault and kind of link; fewer under sanitizers, which set TUTTI_TEST_REDUCED.
std::uint64_t seeds() { return std::getenv("TUTTI_TEST_REDUCED") ? 15 : 60; }

template <class Check>
void for_each_seed(Fault fault, Check check) {
  const char* only = std::getenv("TUTTI_SEED");
  const std::uint64_t first = only ? std::strtoull(only, nullptr, 10) : 1;
  const std::uint64_t last = only ? first : seeds();
  for (std::uint64_t seed = first; seed <= last; ++seed)
    for (const bool memory : {false, true}) {
      const Outcome outcome = Simulation(seed, fault, memory).run();
      SCOPED_TRACE("TUTTI_SEED=" + std::to_string(seed) + "\n" + outcome.story);
      ASSERT_FALSE(outcome.hung);
      check(outcome);
      if (::testing::Test::HasFailure()) return;
    }
}

// Whatever ended well has the right data.
void expect_right_where_ok(const Outcome& outcome) {
  for (int rank = 0; rank < outcome.ranks; ++rank)
    for (std::size_t i = 0; i < outcome.script.size(); ++i) {
      const auto r = static_cast<std::size_t>(rank);
      if (!outcome.statuses[r][i].ok()) continue;
      EXPECT_TRUE(outcome.right[r][i]) << "rank " << rank << " step " << i;
    }
}

void expect_all_ok(const Outcome& outcome) {
  for (int rank = 0; rank < outcome.ranks; ++rank)
    for (const Status& status : outcome.statuses[static_cast<std::size_t>(rank)])
      EXPECT_TRUE(status.ok()) << "rank " << rank << ": " << status.to_string();
  expect_right_where_ok(outcome);
}

// Survivors fail with `code` only.
void expect_only(const Outcome& outcome, Code code) {
  for (int rank = 0; rank < outcome.ranks; ++rank) {
    if (rank == outcome.victim) continue;
    for (const Status& status : outcome.statuses[static_cast<std::size_t>(rank)]) {
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), code) << "rank " << rank << ": " << status.to_string();
    }
  }
}

TEST(Simulation, undisturbed_runs_end_with_right_data) {
  for_each_seed(Fault::none, expect_all_ok);
}

TEST(Simulation, a_stalled_rank_delays_the_others_and_no_more) {
  for_each_seed(Fault::stall, expect_all_ok);
}

TEST(Simulation, a_killed_rank_is_named_by_whoever_needed_it) {
  for_each_seed(Fault::kill, [](const Outcome& outcome) {
    if (outcome.statuses[0].empty()) return;
    for (int rank = 0; rank < outcome.ranks; ++rank) {
      if (rank == outcome.victim) continue;
      const auto r = static_cast<std::size_t>(rank);
      for (std::size_t i = 0; i < outcome.script.size(); ++i) {
        const Status& status = outcome.statuses[r][i];
        if (status.ok()) {
          EXPECT_TRUE(outcome.right[r][i]) << "rank " << rank << " step " << i;
          continue;
        }
        EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
        EXPECT_EQ(status.peer(), outcome.victim) << status.to_string();
      }
    }
  });
}

TEST(Simulation, a_frozen_rank_ends_in_a_timeout_that_names_it) {
  for_each_seed(Fault::freeze, [](const Outcome& outcome) {
    expect_only(outcome, Code::timed_out);
    for (int rank = 0; rank < outcome.ranks; ++rank) {
      if (rank == outcome.victim) continue;
      const auto r = static_cast<std::size_t>(rank);
      for (std::size_t i = 0; i < outcome.script.size(); ++i)
        EXPECT_TRUE(outcome.right[r][i] || !outcome.statuses[r][i].ok()) << "rank " << rank;
    }
  });
}

TEST(Simulation, a_mismatch_reaches_every_rank) {
  for_each_seed(Fault::mismatch, [](const Outcome& outcome) {
    // Either group ends with a barrier: it fails on every rank of the group in which one rank
    // called something else, and nowhere else.
    for (int rank = 0; rank < outcome.ranks; ++rank) {
      const auto& statuses = outcome.statuses[static_cast<std::size_t>(rank)];
      for (int group = 0; group < 2; ++group) {
        const Status& last = statuses[statuses.size() - 2 + static_cast<std::size_t>(group)];
        EXPECT_EQ(last.code(), group == outcome.odd_group ? Code::mismatch : Code::ok)
            << "rank " << rank << " group " << group << ": " << last.to_string();
      }
    }
  });
}

TEST(Simulation, the_same_seed_gives_the_same_run) {
  for (const bool memory : {false, true})
    for (std::uint64_t seed = 1; seed <= 5; ++seed)
      EXPECT_EQ(Simulation(seed, Fault::kill, memory).run().hash,
                Simulation(seed, Fault::kill, memory).run().hash);
}

}  // namespace
}  // namespace tutti::simulation
