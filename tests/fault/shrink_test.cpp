// What is left of a failed group goes on: with the same members on every survivor, with right results,
// and out of reach of those who were taken for dead.
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <numeric>
#include <thread>

#include "support/trial.hpp"
#include "support/worlds.hpp"
#include "tutti/shared_heap.hpp"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

class Shrink : public WorldTest {};
class ShrinkAfterDeath : public WorldTest {};
class ShrinkOfProcesses : public WorldTest {};

bool is_doomed(const Context& here) {
  const auto& doomed = here.world.doomed;
  return std::find(doomed.begin(), doomed.end(), here.rank) != doomed.end();
}

[[noreturn]] void die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

// Who is in the group, by the ranks of the world that it came from.
std::vector<std::int32_t> members_of(Group& group, const Context& here) {
  std::vector<std::int32_t> mine{here.rank}, all(static_cast<std::size_t>(group.size()), -1);
  const Status status = group.all_gather(ConstBuffer::of(mine), Buffer::of(all));
  EXPECT_TRUE(status.ok()) << status.to_string();
  return all;
}

std::vector<std::int32_t> everyone_but(const Context& here, const std::vector<int>& missing) {
  std::vector<std::int32_t> ranks;
  for (int rank = 0; rank < here.size; ++rank)
    if (std::find(missing.begin(), missing.end(), rank) == missing.end()) ranks.push_back(rank);
  return ranks;
}

// As meet, of some of the ranks.
void meet_of(Context& here, int ranks, const std::string& where) {
  const auto came = here.store->add(where + "/came", 1);
  ASSERT_TRUE(came.ok()) << came.status().to_string();
  if (*came == ranks) {
    ASSERT_TRUE(here.store->set(where + "/all", "").ok());
  }
  ASSERT_TRUE(here.store->wait(where + "/all", 30s).ok());
}

void expect_works_alike(Group& group) {
  try_out(group, {.collective = Collective::all_reduce, .count = 33});
  try_out(group, {.collective = Collective::all_gather, .count = 70'001});
  try_out(group, {.collective = Collective::broadcast, .count = 5, .root = group.size() - 1});
  auto copy = group.duplicate();
  ASSERT_TRUE(copy.ok()) << copy.status().to_string();
  try_out(**copy, {.count = 1000});
}

TEST_P(ShrinkAfterDeath, goes_on_without_the_dead) {
  in_world([](Context& here) {
    ASSERT_TRUE(here.group->barrier().ok());
    meet(here);
    if (is_doomed(here)) die();
    EXPECT_EQ(here.group->barrier().code(), Code::peer_lost);
    auto smaller = here.group->shrink();
    ASSERT_TRUE(smaller.ok()) << smaller.status().to_string();
    EXPECT_EQ(members_of(**smaller, here), everyone_but(here, here.world.doomed));
    EXPECT_EQ((*smaller)->name(), here.group->name());
    expect_works_alike(**smaller);
    EXPECT_EQ(here.group->barrier().code(), Code::peer_lost) << "the old one stays as it is";
    EXPECT_EQ(here.group->shrink().status().code(), Code::invalid_argument);
    here.group.reset();
    expect_works_alike(**smaller);
  });
}

// It has called shrink, and dies somewhere in it: the others are with or without it for a while, and in
// the end without.
TEST_P(ShrinkOfProcesses, goes_on_when_another_dies_meanwhile) {
  for (const auto delay : {0us, 150us, 400us, 1500us})
    run(World{.kind = GetParam().kind, .size = 4, .doomed = {1, 2}}, [delay](Context& here) {
      ASSERT_TRUE(here.group->barrier().ok());
      meet(here);
      if (here.rank == 1) die();
      EXPECT_EQ(here.group->barrier().code(), Code::peer_lost);
      meet_of(here, 3, "all know");
      if (here.rank == 2)
        std::thread([delay] {
          std::this_thread::sleep_for(delay);
          die();
        }).detach();
      std::shared_ptr<Group> group = here.group;
      Status status(Code::aborted, "not tried");
      for (int attempt = 0; attempt < 3 && !status.ok(); ++attempt) {
        auto smaller = group->shrink();
        ASSERT_TRUE(smaller.ok()) << smaller.status().to_string();
        group = *smaller;
        while (here.rank == 2) pause();
        // One may have it already when another finds that it lacks a member: they meet in the next one.
        status = group->barrier();
        if (!status.ok()) {
          EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
        }
      }
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(members_of(*group, here), everyone_but(here, {1, 2}));
      expect_works_alike(*group);
    });
}

TEST_P(Shrink, loses_nobody_after_a_mismatch) {
  in_world([](Context& here) {
    std::vector<float> values(static_cast<std::size_t>(here.rank == 1 ? 7 : 5));
    EXPECT_EQ(here.group->all_reduce(Buffer::of(values), ReduceOp::sum).code(), Code::mismatch);
    auto again = here.group->shrink("again");
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(members_of(**again, here), everyone_but(here, {}));
    EXPECT_EQ((*again)->name(), "again");
    expect_works_alike(**again);
  });
}

TEST_P(Shrink, ends_a_group_that_has_not_failed) {
  in_world([](Context& here) {
    std::vector<float> values(5);
    if (here.rank == 0) std::this_thread::sleep_for(20ms);
    Work pending = here.rank == 0 ? Work::finished({})
                                  : here.group->all_reduce_async(Buffer::of(values), ReduceOp::sum);
    if (here.rank != 0) {
      EXPECT_EQ(pending.wait().code(), Code::aborted);
    }
    auto again = here.group->shrink();
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(members_of(**again, here), everyone_but(here, {}));
  });
}

TEST_P(Shrink, shuts_out_a_rank_that_does_not_come) {
  in_world([](Context& here) {
    meet(here);
    if (here.rank == 1) {
      ASSERT_TRUE(here.store->wait("others went on", 30s).ok());
      const Status status = here.group->shrink("", 5s).status();
      EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
      EXPECT_EQ(status.peer(), 1) << status.to_string();
      EXPECT_NE(status.message().find("taken for dead"), std::string::npos) << status.to_string();
      EXPECT_FALSE(here.group->barrier().ok());
      return meet(here, "done");
    }
    auto others = here.group->shrink("", 700ms);
    ASSERT_TRUE(others.ok()) << others.status().to_string();
    EXPECT_EQ(members_of(**others, here), everyone_but(here, {1}));
    ASSERT_TRUE(here.store->set("others went on", "").ok());
    expect_works_alike(**others);
    meet(here, "done");
  });
}

TEST_P(Shrink, goes_on_without_a_rank_that_has_left) {
  in_world([](Context& here) {
    auto copy = here.group->duplicate();
    ASSERT_TRUE(copy.ok()) << copy.status().to_string();
    if (here.rank == 2) copy->reset();
    if (here.rank != 2) {
      EXPECT_EQ((*copy)->barrier().code(), Code::peer_lost);
      auto smaller = (*copy)->shrink();
      ASSERT_TRUE(smaller.ok()) << smaller.status().to_string();
      EXPECT_EQ(members_of(**smaller, here), everyone_but(here, {2}));
    }
    // It left that group, and nothing else.
    expect_works_alike(*here.group);
  });
}

// Stopped in the middle of an all_reduce whose ranks write into each other's memory, and awake again when the
// others have gone on: it must not write into anything that they use now.
using Allocate = std::function<Result<SymmetricMemory>(Group&, std::size_t bytes)>;
void keep_out_a_rank_that_wakes_up_late(World world, const Allocate& allocate) {
  world.size = 3;
  run(world, [allocate](Context& here) {
    constexpr std::size_t kCount = 200'003;
    auto memory = allocate(*here.group, kCount * sizeof(float));
    ASSERT_TRUE(memory.ok()) << memory.status().to_string();
    std::span<float> old(static_cast<float*>(memory->data), kCount);
    ASSERT_TRUE(here.store->set("pid " + std::to_string(here.rank), std::to_string(getpid())).ok());
    meet(here);
    std::thread stopper;
    const pid_t victim = std::stoi(*here.store->get("pid 1", 10s));
    if (here.rank == 0)
      stopper = std::thread([victim] {
        std::this_thread::sleep_for(30ms);
        kill(victim, SIGSTOP);
      });
    Status status;
    while (status.ok()) {
      std::fill(old.begin(), old.end(), 1.0F);
      CallOptions soon;
      soon.timeout = 1s;
      status = here.group->all_reduce(Buffer::of(old.data(), kCount), ReduceOp::sum, soon);
    }
    if (stopper.joinable()) stopper.join();
    if (here.rank == 1) {
      const Status shut_out = here.group->shrink("", 5s).status();
      EXPECT_EQ(shut_out.code(), Code::peer_lost) << shut_out.to_string();
      EXPECT_EQ(shut_out.peer(), 1) << shut_out.to_string();
      return meet(here, "done");
    }
    EXPECT_EQ(status.code(), Code::timed_out) << status.to_string();
    EXPECT_EQ(status.peer(), 1) << status.to_string();
    auto others = here.group->shrink("", 1s);
    ASSERT_TRUE(others.ok()) << others.status().to_string();
    EXPECT_EQ((*others)->size(), 2);
    auto fresh = allocate(**others, kCount * sizeof(float));
    ASSERT_TRUE(fresh.ok()) << fresh.status().to_string();
    std::span<float> news(static_cast<float*>(fresh->data), kCount);
    for (int round = 0; round < 60; ++round) {
      if (round == 10 && here.rank == 0) kill(victim, SIGCONT);
      for (const std::span<float> values : {news, old}) {
        std::fill(values.begin(), values.end(), static_cast<float>(round));
        const Status sum = (*others)->all_reduce(Buffer::of(values.data(), kCount), ReduceOp::sum);
        ASSERT_TRUE(sum.ok()) << sum.to_string();
        const auto wrong = std::count_if(values.begin(), values.end(), [&](float value) {
          return value != 2.0F * static_cast<float>(round);
        });
        ASSERT_EQ(wrong, 0) << "round " << round;
      }
    }
    meet(here, "done");
  });
}

TEST_P(ShrinkOfProcesses, keeps_a_rank_that_wakes_up_late_from_what_the_others_use) {
  keep_out_a_rank_that_wakes_up_late(
      {.kind = GetParam().kind},
      [](Group& group, std::size_t bytes) { return group.allocate(bytes); });
}

Result<SymmetricMemory> from_heap(std::size_t bytes) {
  auto heap = SharedHeap::of_process();
  if (!heap.ok()) return heap.status();
  auto block = heap->allocate(bytes);
  if (!block.ok()) return block.status();
  return SymmetricMemory{
      *block, bytes, std::shared_ptr<void>(*block, [heap = *heap](void* at) { heap.free(at); })};
}

void make_heap(Config&) { EXPECT_TRUE(SharedHeap::of_process().ok()); }

// There the memory stays, and nobody is told: only the buffers of the call that failed are withdrawn.
TEST_P(ShrinkOfProcesses, keeps_a_rank_that_wakes_up_late_from_the_others_heaps) {
  keep_out_a_rank_that_wakes_up_late({.kind = GetParam().kind, .tune = make_heap},
                                     [](Group&, std::size_t bytes) { return from_heap(bytes); });
}

// Killed while the others read its heap and it reads theirs.
TEST_P(ShrinkAfterDeath, goes_on_when_the_dead_ranks_heap_was_in_use) {
  World world = GetParam();
  world.tune = make_heap;
  run(world, [](Context& here) {
    constexpr std::size_t kCount = 1 << 20;
    auto memory = from_heap(kCount * sizeof(float));
    ASSERT_TRUE(memory.ok()) << memory.status().to_string();
    const std::span values(static_cast<float*>(memory->data), kCount);
    if (is_doomed(here))
      std::thread([] {
        std::this_thread::sleep_for(30ms);
        die();
      }).detach();
    Status status;
    while (status.ok()) {
      std::fill(values.begin(), values.end(), 1.0F);
      status = here.group->all_reduce(Buffer::of(values.data(), kCount), ReduceOp::sum);
    }
    EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
    auto smaller = here.group->shrink();
    ASSERT_TRUE(smaller.ok()) << smaller.status().to_string();
    auto fresh = from_heap(kCount * sizeof(float));
    ASSERT_TRUE(fresh.ok()) << fresh.status().to_string();
    const std::span news(static_cast<float*>(fresh->data), kCount);
    for (const std::span<float> each : {values, news}) {
      std::fill(each.begin(), each.end(), 1.0F);
      const Status sum = (*smaller)->all_reduce(Buffer::of(each.data(), kCount), ReduceOp::sum);
      ASSERT_TRUE(sum.ok()) << sum.to_string();
      EXPECT_EQ(std::count(each.begin(), each.end(), static_cast<float>((*smaller)->size())),
                kCount);
    }
    expect_works_alike(**smaller);
  });
}

// A rank is lost, the others go on, another one comes in its place.
TEST_P(Shrink, lets_ranks_come_back) {
  in_world([](Context& here) {
    const bool leaves = here.rank == 1;
    auto nobody = here.group->grow(here.store, here.size + 1);
    ASSERT_TRUE(nobody.ok()) << nobody.status().to_string();
    EXPECT_EQ(*nobody, nullptr);
    meet(here);
    Result<std::shared_ptr<Group>> whole = std::shared_ptr<Group>();
    Config config;
    config.tuning = "fixed";
    if (leaves) {
      here.group.reset();
      whole = Group::join(here.store, {.config = config});
    } else {
      EXPECT_EQ(here.group->barrier().code(), Code::peer_lost);
      auto smaller = here.group->shrink();
      ASSERT_TRUE(smaller.ok()) << smaller.status().to_string();
      while (here.rank == 0 && *Group::waiting(here.store) == 0) std::this_thread::sleep_for(1ms);
      ASSERT_TRUE((*smaller)->barrier().ok());
      whole = (*smaller)->grow(here.store, here.size, {.config = config});
      try_out(**smaller, {.count = 10});
    }
    ASSERT_TRUE(whole.ok()) << whole.status().to_string();
    ASSERT_NE(*whole, nullptr);
    EXPECT_EQ((*whole)->size(), here.size);
    EXPECT_EQ((*whole)->rank() == here.size - 1, leaves);
    expect_works_alike(**whole);
    meet(here, "done");
  });
}

TEST(Join, ends_when_no_group_grows) {
  Config config;
  config.join_timeout = 50ms;
  const auto store = make_memory_store();
  const Status status = Group::join(store, {.config = config}).status();
  EXPECT_EQ(status.code(), Code::timed_out) << status.to_string();
  EXPECT_EQ(Group::join(nullptr).status().code(), Code::invalid_argument);
  EXPECT_EQ(*Group::waiting(store), 1);  // nobody has looked yet
  // Whoever comes later is not kept waiting by it.
  run(World{.size = 1}, [&](Context& here) {
    auto nobody = here.group->grow(store, 2);
    ASSERT_TRUE(nobody.ok()) << nobody.status().to_string();
    EXPECT_EQ(*nobody, nullptr);
    EXPECT_EQ(*Group::waiting(store), 0);
  });
}

TEST(Join, is_not_waited_for_by_a_group_when_its_process_has_died) {
  const auto store = make_memory_store();
  ASSERT_TRUE(
      store->add("tutti/world/grow/newcomers", 1).ok());  // it drew a ticket, and is no more
  run(World{.size = 1}, [&](Context& here) {
    const auto began = std::chrono::steady_clock::now();
    auto nobody = here.group->grow(store, 2);
    ASSERT_TRUE(nobody.ok()) << nobody.status().to_string();
    EXPECT_EQ(*nobody, nullptr);
    EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
  });
}

std::vector<World> shrinking_worlds() {
  return {World{.kind = WorldKind::shm, .size = 3}, World{.kind = WorldKind::tcp, .size = 3}};
}

INSTANTIATE_TEST_SUITE_P(World, Shrink, testing::ValuesIn(one_world_of_each()), name_of);
INSTANTIATE_TEST_SUITE_P(World, ShrinkAfterDeath,
                         testing::ValuesIn(each_victim_in(shrinking_worlds())), name_of);
INSTANTIATE_TEST_SUITE_P(World, ShrinkOfProcesses, testing::ValuesIn(shrinking_worlds()), name_of);

TEST(ShrinkToOne, needs_nobody) {
  for (const WorldKind kind : {WorldKind::shm, WorldKind::tcp})
    run(World{.kind = kind, .size = 2, .doomed = {0}}, [](Context& here) {
      ASSERT_TRUE(here.group->barrier().ok());
      meet(here);
      if (here.rank == 0) die();
      EXPECT_EQ(here.group->barrier().code(), Code::peer_lost);
      auto alone = here.group->shrink();
      ASSERT_TRUE(alone.ok()) << alone.status().to_string();
      EXPECT_EQ((*alone)->size(), 1);
      expect_works_alike(**alone);
    });
}

}  // namespace
}  // namespace tutti::test
