// Collectives of ranks that share a host: every way that data can take, in every order in which ranks may run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "unit/engine/host_world.hpp"

namespace tutti::engine {
namespace {

using testing::HostWorld;
using testing::Task;

// From a line's payload to several pieces for each rank.
constexpr std::size_t kCounts[] = {0, 1, 2, 5, 100, 1000, 5000, 20'000, 60'000};
constexpr std::size_t kMostElements = 60'000 * 2 * 5;

constexpr Collective kAll[] = {
    Collective::barrier,    Collective::broadcast,      Collective::reduce,
    Collective::all_reduce, Collective::gather,         Collective::all_gather,
    Collective::scatter,    Collective::reduce_scatter, Collective::all_to_all,
    Collective::scan,       Collective::exclusive_scan};

bool can_be_in_place(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::all_gather ||
         collective == Collective::reduce_scatter || collective == Collective::all_to_all ||
         collective == Collective::scan;
}

Task random_task(std::mt19937_64& random, int size) {
  Task task;
  task.collective = kAll[random() % std::size(kAll)];
  task.shots = 1 + static_cast<int>(random() % 2);
  task.root = has_root(task.collective) ? static_cast<int>(random()) % size : 0;
  if (task.root < 0) task.root = -task.root;
  task.in_place = can_be_in_place(task.collective) && random() % 2 == 0;
  task.symmetric = random() % 2 == 0;
  task.mixed = random() % 4 == 0;
  // In place, the part of a side with blocks is one piece.
  const bool part = task.in_place && task.collective != Collective::all_reduce;
  task.scattered = !part && random() % 4 == 0;
  task.count = kCounts[random() % std::size(kCounts)];
  return task;
}

class RandomTasks : public ::testing::TestWithParam<int> {};

TEST_P(RandomTasks, are_right_in_any_order_of_steps) {
  const int size = GetParam();
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    std::mt19937_64 random(seed * 97 + static_cast<std::uint64_t>(size));
    std::vector<Task> tasks;
    for (int i = 0; i < 25; ++i) tasks.push_back(random_task(random, size));
    HostWorld world(size, seed % 2 == 0, kMostElements, seed);
    ASSERT_EQ(world.run(tasks), "") << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(HostRun, RandomTasks, ::testing::Values(2, 3, 4, 5));

TEST(HostRun, serves_every_collective_by_direct) {
  for (int size : {2, 3, 8, 17})
    for (Collective collective : kAll)
      for (int shots : {1, 2}) {
        std::vector<Task> tasks;
        for (std::size_t count : {std::size_t{1}, std::size_t{700}}) {
          Task task;
          task.collective = collective;
          task.shots = shots;
          task.root = has_root(collective) ? size - 1 : 0;
          task.count = count;
          tasks.push_back(task);
        }
        HostWorld world(size, true, 700 * 2 * 18, 3);
        EXPECT_EQ(world.run(tasks), "") << to_string(collective) << " of " << size;
      }
}

// As pieces of a pool do: what all can reach is found wherever each rank has it.
TEST(HostRun, copies_nothing_where_ranks_have_their_mapped_memory_at_different_places) {
  constexpr int kSize = 3;
  constexpr std::size_t kCount = 60'000;
  std::vector<Task> tasks;
  for (Collective collective : kAll)
    for (int shots : {1, 2})
      for (bool in_place : {false, true}) {
        if (collective == Collective::barrier || (in_place && !can_be_in_place(collective)))
          continue;
        Task task;
        task.collective = collective;
        task.shots = shots;
        task.in_place = in_place;
        task.root = has_root(collective) ? 1 : 0;
        task.symmetric = true;
        task.count = kCount;
        tasks.push_back(task);
      }
  const auto ranks_mapped = [&](bool apart) {
    for (Task& task : tasks) task.apart = apart;
    HostWorld world(kSize, true, kCount * 2 * kSize + kSize * HostWorld::kApart, 7);
    EXPECT_EQ(world.run(tasks), "");
    return world.mapped();
  };
  const std::vector<int> together = ranks_mapped(false);
  EXPECT_EQ(ranks_mapped(true), together);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    if (tasks[t].collective == Collective::all_reduce ||
        tasks[t].collective == Collective::all_gather) {
      EXPECT_EQ(together[t], kSize)
          << to_string(tasks[t].collective) << ", " << tasks[t].shots << " shots";
    }
  }
}

TEST(Fingerprint, hashes_differ_where_calls_do) {
  Fingerprint call;
  call.count = 10;
  const std::uint32_t hash = call_hash_of(call);
  EXPECT_EQ(call_hash_of(call), hash);
  Fingerprint other = call;
  other.count = 11;
  EXPECT_NE(call_hash_of(other), hash);
  other = call;
  other.op = ReduceOp::max;
  EXPECT_NE(call_hash_of(other), hash);
  other = call;
  other.to_you = 5;  // only pairs can compare that
  EXPECT_EQ(call_hash_of(other), hash);
}

}  // namespace
}  // namespace tutti::engine
