// A replica that goes on on fewer ranks has the bits of one that was started there from the same
// state, and so has one that a lost rank joins again.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <new>
#include <string_view>

#include "support/worlds.hpp"
#include "train/folder.hpp"
#include "train/training.hpp"
#include "tutti/train/checkpoint.hpp"

namespace {

// The next allocation of a thread that was started by the one that asked for it is refused.
std::atomic<bool> refuses_memory = false;
thread_local bool is_spared = false;

bool is_refused() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  const std::string_view mine = name;
  return !is_spared && (mine == "doomed" || mine == "tutti save") && refuses_memory.exchange(false);
}

}  // namespace

// Not inline: where one half of a pair is, gcc warns of a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* memory = refuses_memory && is_refused() ? nullptr : std::malloc(bytes);
  return memory != nullptr ? memory : throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tutti::test {
namespace {

constexpr int kRanks = 3;
constexpr int kLost = 1;
constexpr int kLastStep = 8;

train::CheckpointInfo info_of_step(std::int64_t step) {
  train::CheckpointInfo info;
  info.iteration = step;
  return info;
}

// Whoever goes after this takes no collective with it that others are still in.
void meet(Group& group) { ASSERT_TRUE(group.barrier().ok()); }

// Of a rank of the survivors.
void write_end(Training& training, const std::vector<double>& losses, std::int64_t from,
               const std::string& path) {
  std::ofstream file(path);
  file << from << std::setprecision(17);
  for (const double loss : losses) file << ' ' << loss;
  file << ' ' << training.hash();
}

// Trains `steps` steps, saves each, loses a rank in the middle of the next one and goes on.
void lose_one(const Plan& plan, int steps, const Folder& folder) {
  run(World{.kind = WorldKind::threads, .size = kRanks}, [&](Context& here) {
    auto group = here.group->duplicate({"doomed"});
    ASSERT_TRUE(group.ok());
    Training training(*group, plan);
    for (int step = 0; step < steps; ++step) {
      (void)training.advance(step, step + 1);
      const auto info = info_of_step(step + 1);
      ASSERT_TRUE(train::save_checkpoint(training.layer(), folder.path(), info).ok());
    }
    (void)training.compute(steps);
    meet(*here.group);
    if (here.rank == kLost) return (*group)->abort("rank 1 goes");
    EXPECT_FALSE(training.update().ok());
    const std::vector<int> left = {0, 2};
    auto survivors = here.group->subgroup(left, 7);
    ASSERT_TRUE(survivors.ok()) << survivors.status().to_string();
    const auto from = training.recover(*survivors);
    ASSERT_TRUE(from.ok()) << from.status().to_string();
    EXPECT_LE(*from, steps);
    EXPECT_GE(*from, plan.buddy ? std::max(0, steps - 1) : steps);
    const auto losses = training.advance(static_cast<int>(*from), kLastStep);
    write_end(training, losses, *from, folder / ("went_on" + std::to_string(here.rank)));
  });
}

// The same, started on two ranks from the checkpoint of that step; without one, from scratch.
void start_with_two(const Plan& plan, int from, const Folder& folder) {
  run(World{.kind = WorldKind::threads, .size = kRanks - 1}, [&](Context& here) {
    Training training(here.group, plan);
    const std::string checkpoint = fmt::format("{}/iter_{:07}", folder.path(), from);
    if (from > 0) {
      ASSERT_TRUE(train::load_checkpoint(training.layer(), checkpoint).ok());
    }
    const auto losses = training.advance(from, kLastStep);
    write_end(training, losses, from, folder / ("started" + std::to_string(here.rank)));
  });
}

void expect_same_bits(const Plan& plan, int steps) {
  Folder folder;
  lose_one(plan, steps, folder);
  const std::string went_on = bytes_of(folder / "went_on0");
  EXPECT_EQ(bytes_of(folder / "went_on2"), went_on);
  start_with_two(plan, std::atoi(went_on.c_str()), folder);
  EXPECT_EQ(bytes_of(folder / "started0"), went_on);
  EXPECT_EQ(bytes_of(folder / "started1"), went_on);
}

TEST(Recover, plain_data_parallelism_goes_on_from_the_last_step) {
  expect_same_bits({.mode = 0}, 3);
  expect_same_bits({.mode = 1, .dtype = Dtype::bf16}, 3);
}

TEST(Recover, shards_come_back_from_the_buddy) {
  expect_same_bits({.mode = 2, .buddy = true}, 3);
  expect_same_bits({.mode = 4, .buddy = true}, 4);
  expect_same_bits({.mode = 4, .dtype = Dtype::bf16, .optimizer = train::Sgd{}, .buddy = true}, 3);
  expect_same_bits({.mode = 5, .buddy = true}, 3);  // gradients in shards as well
}

TEST(Recover, a_failure_in_the_first_step_loses_nothing) {
  expect_same_bits({.mode = 0}, 0);
  expect_same_bits({.mode = 4}, 0);
  expect_same_bits({.mode = 5}, 0);
}

TEST(Recover, the_copies_do_not_change_the_bits) {
  Folder folder;
  run(World{.kind = WorldKind::threads, .size = kRanks}, [&](Context& here) {
    for (const bool buddy : {false, true}) {
      Training training(here.group, {.mode = 4, .buddy = buddy});
      const auto losses = training.advance(0, 4);
      write_end(training, losses, 0, folder / fmt::format("{}{}", buddy, here.rank));
    }
  });
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_EQ(bytes_of(folder / fmt::format("true{}", rank)), bytes_of(folder / "false0"));
}

// Three train, then two, then one; no step lies between the losses.
TEST(Recover, copies_are_there_again_before_the_next_step) {
  run(World{.kind = WorldKind::threads, .size = kRanks}, [](Context& here) {
    auto group = here.group->duplicate({"doomed"});
    ASSERT_TRUE(group.ok());
    Training training(*group, {.mode = 4, .buddy = true});
    (void)training.advance(0, 3);
    meet(*here.group);
    if (here.rank == kLost) return;
    const std::vector<int> left = {0, 2};
    auto two = here.group->subgroup(left, 7);
    ASSERT_TRUE(two.ok());
    const auto from = training.recover(*two);
    ASSERT_TRUE(from.ok()) << from.status().to_string();
    const std::string hash = training.hash();
    meet(**two);
    if (here.rank != 0) return;
    auto one = (*two)->subgroup(std::vector<int>{0}, 8);
    ASSERT_TRUE(one.ok());
    const auto again = training.recover(*one);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(*again, *from);
    EXPECT_EQ(training.hash(), hash);
  });
}

// By its iteration, not by how often weights were updated: steps may have been skipped.
TEST(Recover, copies_are_there_after_loading) {
  Folder folder;
  run(World{.kind = WorldKind::threads, .size = kRanks}, [&](Context& here) {
    Training training(here.group, {.mode = 4, .buddy = true});
    (void)training.advance(0, 2);
    ASSERT_TRUE(train::save_checkpoint(training.layer(), folder.path(), info_of_step(5)).ok());
    const std::string hash = training.hash();
    Training loaded(here.group, {.mode = 4, .seed = 2, .buddy = true});
    ASSERT_TRUE(train::load_checkpoint(loaded.layer(), folder.path()).ok());
    meet(*here.group);
    if (here.rank == kLost) return;
    const std::vector<int> left = {0, 2};
    auto survivors = here.group->subgroup(left, 7);
    ASSERT_TRUE(survivors.ok());
    const auto from = loaded.recover(*survivors);
    ASSERT_TRUE(from.ok()) << from.status().to_string();
    EXPECT_EQ(*from, 5);
    EXPECT_EQ(loaded.hash(), hash);
  });
}

TEST(Recover, a_shard_that_nobody_has_is_named) {
  run(World{.kind = WorldKind::threads, .size = kRanks}, [](Context& here) {
    auto group = here.group->duplicate({"doomed"});
    ASSERT_TRUE(group.ok());
    Training training(*group, {.mode = 4});
    (void)training.advance(0, 2);
    (void)training.compute(2);
    meet(*here.group);
    if (here.rank == kLost) return (*group)->abort("rank 1 goes");
    EXPECT_FALSE(training.update().ok());
    const std::vector<int> left = {0, 2};
    auto survivors = here.group->subgroup(left, 7);
    ASSERT_TRUE(survivors.ok());
    const auto from = training.recover(*survivors);
    EXPECT_EQ(from.status().code(), Code::peer_lost) << from.status().to_string();
    EXPECT_THAT(from.status().message(), testing::HasSubstr("that rank 1 kept is lost"));
  });
}

// ---- with a rank that is back

// Two train, and save where they stand; then a third one, with other weights, joins them.
void take_one_in(const Plan& plan, int steps, const Folder& folder) {
  run(World{.kind = WorldKind::threads, .size = kRanks}, [&](Context& here) {
    const bool joins = here.rank == 2;
    const std::vector<int> own = joins ? std::vector<int>{2} : std::vector<int>{0, 1};
    auto before = here.group->subgroup(own, 7);
    ASSERT_TRUE(before.ok()) << before.status().to_string();
    Plan mine = plan;
    if (joins) mine.seed += 1;
    Training training(*before, mine);
    if (!joins) {
      (void)training.advance(0, steps);
      const auto info = info_of_step(steps);
      ASSERT_TRUE(train::save_checkpoint(training.layer(), folder.path(), info).ok());
    }
    const auto from = joins ? training.join(here.group) : training.recover(here.group);
    ASSERT_TRUE(from.ok()) << from.status().to_string();
    EXPECT_EQ(*from, steps);
    const auto losses = training.advance(steps, kLastStep);
    write_end(training, losses, *from, folder / ("grown" + std::to_string(here.rank)));
  });
}

void expect_same_bits_when_one_joins(const Plan& plan) {
  constexpr int kSteps = 3;
  Folder folder;
  take_one_in(plan, kSteps, folder);
  run(World{.kind = WorldKind::threads, .size = kRanks}, [&](Context& here) {
    Training training(here.group, plan);
    ASSERT_TRUE(train::load_checkpoint(training.layer(), folder.path()).ok());
    const auto losses = training.advance(kSteps, kLastStep);
    write_end(training, losses, kSteps, folder / ("started" + std::to_string(here.rank)));
  });
  const std::string started = bytes_of(folder / "started0");
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_EQ(bytes_of(folder / fmt::format("grown{}", rank)), started);
}

TEST(Join, brings_a_newcomer_to_the_bits_of_the_others) {
  expect_same_bits_when_one_joins({.mode = 0});
  expect_same_bits_when_one_joins({.mode = 1, .dtype = Dtype::bf16});
  expect_same_bits_when_one_joins({.mode = 2});
  expect_same_bits_when_one_joins({.mode = 4, .dtype = Dtype::bf16, .buddy = true});
}

TEST(Join, refuses_one_with_other_options) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    auto alone = here.group->subgroup(std::vector<int>{here.rank}, 7);
    ASSERT_TRUE(alone.ok());
    Training training(*alone, {.mode = here.rank == 0 ? 0 : 1});
    const auto from = here.rank == 0 ? training.recover(here.group) : training.join(here.group);
    EXPECT_EQ(from.status().code(), Code::mismatch) << from.status().to_string();
  });
}

TEST(Join, is_for_layers_that_were_made_alone) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    Training training(here.group, {.mode = 0});
    EXPECT_EQ(training.join(here.group).status().code(), Code::invalid_argument);
  });
}

// ---- beside training

TEST(CheckpointWriter, saves_the_state_of_the_step_that_it_was_started_after) {
  Folder folder;
  run(World{.kind = WorldKind::threads, .size = 2}, [&](Context& here) {
    Training training(here.group, {.mode = 4});
    auto writer = train::CheckpointWriter::create(*here.group);
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE((*writer)->done());
    for (int step = 0; step < 4; ++step) {
      (void)training.advance(step, step + 1);
      const auto info = info_of_step(step + 1);
      const Status saved = train::save_checkpoint(training.layer(), folder / "at_once", info);
      const Status begun = (*writer)->start(training.layer(), folder / "beside", info, 2);
      ASSERT_TRUE(saved.ok() && begun.ok()) << saved.to_string() << begun.to_string();
    }
    ASSERT_TRUE((*writer)->wait().ok());
    EXPECT_TRUE((*writer)->done());
  });
  for (const char* name :
       {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
        "state_00000_of_00002.safetensors", "state_00001_of_00002.safetensors", "checkpoint.json"})
    for (const char* step : {"iter_0000003/", "iter_0000004/"})
      EXPECT_EQ(bytes_of(folder / "beside/" + step + name),
                bytes_of(folder / "at_once/" + step + name));
  EXPECT_EQ(bytes_of(folder / "beside/latest"), "iter_0000004\n");
}

// One step is done, and a writer stands ready beside it, on each of two ranks.
using WithWriter = std::function<void(Context&, Training&, train::CheckpointWriter&)>;
void with_writer(const WithWriter& body) {
  run(World{.kind = WorldKind::threads, .size = 2}, [&](Context& here) {
    Training training(here.group, {.mode = 4});
    auto writer = train::CheckpointWriter::create(*here.group);
    ASSERT_TRUE(writer.ok());
    (void)training.advance(0, 1);
    body(here, training, **writer);
  });
}

TEST(CheckpointWriter, a_failure_of_writing_is_told_alike_and_training_goes_on) {
  Folder folder;
  with_writer([&](Context& here, Training& training, train::CheckpointWriter& writer) {
    ASSERT_TRUE(writer.start(training.layer(), folder / "saved", info_of_step(1)).ok());
    (void)training.advance(1, 2);
    ASSERT_TRUE(writer.wait().ok());
    // What lies in the way of the next one is a file that cannot be replaced by a folder.
    if (here.rank == 0) overwrite(folder / "saved/iter_0000002", "in the way");
    (void)training.advance(2, 3);
    ASSERT_TRUE(writer.start(training.layer(), folder / "saved", info_of_step(2)).ok());
    (void)training.advance(3, 4);
    const Status verdict = writer.wait();
    EXPECT_EQ(verdict.code(), Code::io) << verdict.to_string();
    EXPECT_THAT(verdict.message(), testing::HasSubstr("saving a checkpoint: rank 0: "));
  });
  EXPECT_THAT(folder.names(), testing::ElementsAre("saved"));
  EXPECT_EQ(bytes_of(folder / "saved/latest"), "iter_0000001\n");
}

TEST(CheckpointWriter, memory_that_cannot_be_had_is_told_alike) {
  Folder folder;
  with_writer([&](Context& here, Training& training, train::CheckpointWriter& writer) {
    is_spared = true;
    pthread_setname_np(pthread_self(), "doomed");  // the writer's thread begins with it
    if (here.rank == 0) refuses_memory = true;
    ASSERT_TRUE(writer.start(training.layer(), folder / "saved", info_of_step(1)).ok());
    const Status verdict = writer.wait();
    EXPECT_EQ(verdict.code(), Code::out_of_memory) << verdict.to_string();
    EXPECT_THAT(verdict.message(), testing::HasSubstr("memory cannot be had"));
  });
}

}  // namespace
}  // namespace tutti::test
