// Collectives on a stage: every way that data can take, in every order in which ranks may run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "unit/engine/stage_world.hpp"

namespace tutti::engine {
namespace {

using testing::StageWorld;
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
    StageWorld world(size, seed % 2 == 0, kMostElements, seed);
    ASSERT_EQ(world.run(tasks), "") << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Stage, RandomTasks, ::testing::Values(2, 3, 4, 5));

TEST(Stage, serves_every_collective_by_direct) {
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
        StageWorld world(size, true, 700 * 2 * 18, 3);
        EXPECT_EQ(world.run(tasks), "") << to_string(collective) << " of " << size;
      }
}

std::vector<schedule::Program> programs_of(Collective collective, Algorithm algorithm, int size,
                                           bool in_place) {
  std::vector<schedule::Program> programs;
  for (int rank = 0; rank < size; ++rank) {
    schedule::Request request;
    request.collective = collective;
    request.size = size;
    request.rank = rank;
    request.in_place = in_place;
    programs.push_back(schedule::fuse_folds(*schedule::build(algorithm, request)));
  }
  return programs;
}

TEST(StageProgram, refuses_schedules_that_forward) {
  EXPECT_FALSE(
      compile_for_stage(programs_of(Collective::all_reduce, Algorithm::ring, 4, false), 1));
  EXPECT_FALSE(
      compile_for_stage(programs_of(Collective::broadcast, Algorithm::binomial_tree, 5, true), 0));
}

// Ranks may mix: one calls in place, another does not. They must find each other's chunks all the
// same.
TEST(StageProgram, shows_the_same_chunks_in_place_or_not) {
  for (Collective collective : {Collective::all_reduce, Collective::all_gather,
                                Collective::reduce_scatter, Collective::all_to_all}) {
    for (int size : {2, 3, 6}) {
      const auto apart =
          compile_for_stage(programs_of(collective, Algorithm::direct, size, false), 1);
      const auto within =
          compile_for_stage(programs_of(collective, Algorithm::direct, size, true), 1);
      ASSERT_TRUE(apart && within);
      EXPECT_EQ(apart->shown, within->shown);
      EXPECT_EQ(apart->shown_extents, within->shown_extents);
      EXPECT_EQ(apart->two_phases, within->two_phases);
    }
  }
}

TEST(StageProgram, knows_when_buffers_must_not_be_read_where_they_lie) {
  const auto in_place = [](Collective collective) {
    return compile_for_stage(programs_of(collective, Algorithm::direct, 4, true), 2);
  };
  // Two shots: whoever overwrites a slice is the only one who reads it.
  EXPECT_TRUE(in_place(Collective::all_reduce)->unaliased);
  // Blocks that leave lie where those that come must go.
  EXPECT_FALSE(in_place(Collective::all_to_all)->unaliased);
}

TEST(StageProgram, divides_the_work_of_a_root) {
  const auto broadcast =
      compile_for_stage(programs_of(Collective::broadcast, Algorithm::direct, 4, true), 0);
  ASSERT_TRUE(broadcast);
  EXPECT_TRUE(broadcast->lopsided);
  ASSERT_EQ(broadcast->gives.size(), 3u);
  EXPECT_DOUBLE_EQ(broadcast->gives[0].share, 0.25);
  EXPECT_EQ(broadcast->readers, 3u);
  const auto gather =
      compile_for_stage(programs_of(Collective::all_gather, Algorithm::direct, 4, false), 0);
  EXPECT_FALSE(gather->lopsided);
  EXPECT_FALSE(compile_for_stage(programs_of(Collective::all_reduce, Algorithm::direct, 4, true), 0)
                   ->lopsided);
  const auto of_two =
      compile_for_stage(programs_of(Collective::broadcast, Algorithm::direct, 2, true), 0);
  EXPECT_DOUBLE_EQ(of_two->gives[0].share, 0.5);
  EXPECT_DOUBLE_EQ(gather->gives[0].share, 0.0);
}

TEST(Fingerprint, prints_differ_where_calls_do) {
  Fingerprint call;
  call.count = 10;
  const std::uint32_t print = print_of(call);
  EXPECT_EQ(print_of(call), print);
  Fingerprint other = call;
  other.count = 11;
  EXPECT_NE(print_of(other), print);
  other = call;
  other.op = ReduceOp::max;
  EXPECT_NE(print_of(other), print);
  other = call;
  other.to_you = 5;  // only pairs can compare that
  EXPECT_EQ(print_of(other), print);
}

}  // namespace
}  // namespace tutti::engine
