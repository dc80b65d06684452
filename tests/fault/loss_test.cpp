// A killed rank ends the others' operations with peer_lost naming it, in the groups that contain
// it. Rank 0, a middle one and the last are killed in turn.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "support/sanitized.hpp"
#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

constexpr std::chrono::seconds kAfterLoss{2 * kSlowness};  // on one host

int victim_of(const Context& here) { return here.world.doomed.front(); }
bool is_victim(const Context& here) { return here.rank == victim_of(here); }

std::int64_t now_ns() {  // the same clock in all processes of a host
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

// Dies without a word, but for the time.
[[noreturn]] void die(Context& here) {
  (void)here.store->set("died at", std::to_string(now_ns()));
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

// Blocks all that others wait for until the victim is about to die.
void wait_for_death(Context& here) {
  ASSERT_TRUE(here.store->wait("died at", std::chrono::seconds(30)).ok());
}

void expect_lost(Context& here, const Status& status) {
  EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
  EXPECT_EQ(status.peer(), victim_of(here)) << status.to_string();
  EXPECT_NE(status.message().find("rank " + std::to_string(victim_of(here))), std::string::npos)
      << status.to_string();
}

void expect_in_time(Context& here, const char* what) {
  const auto died = here.store->get("died at", std::chrono::seconds(10));
  ASSERT_TRUE(died.ok());
  const auto took = std::chrono::nanoseconds(now_ns() - std::stoll(*died));
  std::printf("%s: rank %d had its %s ended %.1f ms after the death\n",
              describe(here.world).c_str(), here.rank, what,
              std::chrono::duration<double, std::milli>(took).count());
  EXPECT_LT(took, kAfterLoss);
}

class Loss : public WorldTest {};

TEST_P(Loss, ends_pending_and_later_collectives) {
  in_world([](Context& here) {
    ASSERT_TRUE(here.group->barrier().ok());
    meet(here);
    if (is_victim(here)) die(here);
    std::vector<float> values(100'003, 1.0F);
    Work first = here.group->all_reduce_async(Buffer::of(values), ReduceOp::sum);
    Work second = here.group->barrier_async();
    expect_lost(here, first.wait());
    expect_in_time(here, "collective");
    expect_lost(here, second.wait());
    expect_lost(here, here.group->broadcast(Buffer::of(values), 0));
    expect_lost(here, here.group->health());
    EXPECT_FALSE(here.group->duplicate().ok());
  });
}

TEST_P(Loss, ends_pending_messages_also_those_from_others) {
  in_world([](Context& here) {
    ASSERT_TRUE(here.group->barrier().ok());
    meet(here);
    if (is_victim(here)) die(here);
    std::vector<float> a(10), b(10), large(300'007);
    Work from_dead = here.group->irecv(Buffer::of(a), victim_of(here));
    Work from_any = here.group->irecv(Buffer::of(b), kAnySource, 5);
    Work to_dead = here.group->isend(ConstBuffer::of(large), victim_of(here), 6);
    expect_lost(here, from_dead.wait());
    expect_in_time(here, "receive");
    expect_lost(here, from_any.wait());
    expect_lost(here, to_dead.wait());
  });
}

TEST_P(Loss, is_found_by_ranks_that_were_idle) {
  in_world([](Context& here) {
    ASSERT_TRUE(here.group->barrier().ok());
    meet(here);
    if (is_victim(here)) die(here);
    wait_for_death(here);
    expect_lost(here, here.group->barrier());
    expect_in_time(here, "next call");
  });
}

// What the victim does when it folds for the second time: some of the call is done, and some is not.
struct Fuse {
  Context* here = nullptr;
  std::atomic<int> folds{0};
};

void add_until_death(const void* in, void* inout, std::size_t count, Dtype, void* context) {
  auto& fuse = *static_cast<Fuse*>(context);
  if (is_victim(*fuse.here) && ++fuse.folds == 2) die(*fuse.here);
  const auto* left = static_cast<const float*>(in);
  auto* right = static_cast<float*>(inout);
  for (std::size_t i = 0; i < count; ++i) right[i] += left[i];
}

// The victim kills itself from inside the reduction, and would live to its end, which is a failure,
// if it never folded.
TEST_P(Loss, in_the_middle_of_a_reduction_ends_everybody) {
  in_world([](Context& here) {
    Fuse fuse{&here};
    const UserReduction add{"add until death", &add_until_death, &fuse, true};
    std::vector<float> values(2'000'003, 1.0F);
    Work work = here.group->all_reduce_async(Buffer::of(values), Reduction::by(add));
    expect_lost(here, work.wait());
    expect_in_time(here, "reduction");
    expect_lost(here, here.group->barrier());
  });
}

TEST_P(Loss, in_a_stream_of_calls_ends_everybody) {
  in_world([](Context& here) {
    std::vector<float> values(200'003, 1.0F);
    for (int i = 0;; ++i) {
      if (is_victim(here) && i == 10) {
        Work work = here.group->all_reduce_async(Buffer::of(values), ReduceOp::max);
        die(here);
      }
      const Status status = here.group->all_reduce(Buffer::of(values), ReduceOp::max);
      // The victim has begun the eleventh, which may still end well; the twelfth cannot.
      if (status.ok() && i < 11) continue;
      expect_lost(here, status);
      expect_in_time(here, "stream of calls");
      break;
    }
  });
}

TEST_P(Loss, poisons_exactly_the_groups_that_contain_the_dead) {
  in_world([](Context& here) {
    auto survivors = here.group->split(is_victim(here) ? -1 : 0, here.rank, {"survivors"});
    auto copy = here.group->duplicate({"copy"});
    ASSERT_TRUE(survivors.ok() && copy.ok());
    ASSERT_TRUE(here.group->barrier().ok());
    meet(here);
    if (is_victim(here)) die(here);
    std::vector<float> values(10);
    Work pending = (*copy)->all_reduce_async(Buffer::of(values), ReduceOp::sum);
    expect_lost(here, here.group->barrier());
    expect_lost(here, pending.wait());
    expect_lost(here, (*copy)->health());
    EXPECT_TRUE((*survivors)->health().ok()) << (*survivors)->health().to_string();
    for (std::size_t count : {1, 1021, 100'003}) {
      try_out(**survivors, {.count = count});
      try_out(**survivors, {.collective = Collective::all_to_all, .count = count});
    }
    // And new groups of survivors can be made from groups of survivors.
    auto again = (*survivors)->duplicate();
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    try_out(**again, {.count = 100});
  });
}

TEST_P(Loss, leaves_symmetric_memory_of_survivors_usable) {
  in_world([](Context& here) {
    auto survivors = here.group->split(is_victim(here) ? -1 : 0, here.rank);
    ASSERT_TRUE(survivors.ok());
    std::optional<Arena> shared, own;
    shared.emplace(*here.group, 1 << 20);
    if (!is_victim(here)) own.emplace(**survivors, 1 << 20);
    ASSERT_TRUE(here.group->barrier().ok());
    meet(here);
    if (is_victim(here)) die(here);
    Trial trial(*here.group, {.count = 20'011, .in_place = true}, &*shared);
    expect_lost(here, trial.run());
    try_out(**survivors, {.count = 20'011, .in_place = true}, &*own);
  });
}

INSTANTIATE_TEST_SUITE_P(World, Loss,
                         testing::ValuesIn(each_victim_in({{.kind = WorldKind::shm, .size = 3},
                                                           {.kind = WorldKind::tcp, .size = 3},
                                                           {.kind = WorldKind::shm, .size = 5},
                                                           {.kind = WorldKind::mixed, .size = 4}})),
                         name_of);

// Where not every pair has a link.
INSTANTIATE_TEST_SUITE_P(
    LazyWorld, Loss,
    testing::ValuesIn(each_victim_in({{.kind = WorldKind::tcp,
                                       .size = 8,
                                       .tune = [](Config& config) { config.links = "lazy"; }}})),
    name_of);

TEST(LossOfAll, but_one_ends_that_one) {
  for (WorldKind kind : worlds_of_processes()) {
    World world{.kind = kind, .size = 4};
    world.doomed = {1, 2, 3};
    run(world, [](Context& here) {
      ASSERT_TRUE(here.group->barrier().ok());
      meet(here);
      if (here.rank != 0) die(here);
      const Status status = here.group->barrier();
      EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
      expect_in_time(here, "barrier");
    });
  }
}

// Leaving in good order is not dying, but those who still want something of the rank must not hang.
TEST(Leaving, ends_the_operations_that_wait_for_the_one_who_left) {
  std::vector<WorldKind> kinds = worlds_of_processes();
  kinds.push_back(WorldKind::threads);
  for (WorldKind kind : kinds)
    run(World{.kind = kind, .size = 3}, [](Context& here) {
      for (int leaver = 0; leaver < here.size; ++leaver) {
        auto copy = here.group->duplicate();
        ASSERT_TRUE(copy.ok());
        if (here.rank == leaver) {
          copy->reset();
        } else {
          const Status status = (*copy)->barrier();
          EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
          EXPECT_EQ(status.peer(), leaver) << status.to_string();
          EXPECT_NE(status.message().find("rank " + std::to_string(leaver)), std::string::npos)
              << status.to_string();
        }
        EXPECT_TRUE(here.group->barrier().ok());
      }
    });
}

}  // namespace
}  // namespace tutti::test
