// Who gives no sign of life for dead_after is taken for dead, by everybody, in time; who lives never
// is: not while it computes, not with a full window, not when it was stopped for less.
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "support/worlds.hpp"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kDeadAfter = 1000ms;     // where somebody has to be found dead
constexpr auto kPatience = 2000ms;      // where nobody may
constexpr auto kBound = 1000ms;         // beyond dead_after
constexpr std::size_t kMuch = 8 << 20;  // floats: more than all buffers on the way hold

std::function<void(Config&)> dead_after(std::chrono::milliseconds time, bool progress = true) {
  return [=](Config& config) {
    config.dead_after = time;
    config.progress_thread = progress;
  };
}

void tell_pid(Context& here) {
  ASSERT_TRUE(
      here.store->set("pid of " + std::to_string(here.rank), std::to_string(getpid())).ok());
}

pid_t pid_of(Context& here, int rank) {
  const auto pid = here.store->get("pid of " + std::to_string(rank), 10s);
  return pid.ok() ? std::atoi(pid->c_str()) : 0;
}

void expect_silent(const Status& status, int culprit) {
  EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
  EXPECT_EQ(status.peer(), culprit) << status.to_string();
  EXPECT_NE(status.message().find("silent"), std::string::npos) << status.to_string();
}

void expect_in_bound(Clock::time_point began, const Context& here, const char* what) {
  const auto took = Clock::now() - began;
  std::printf("%s: rank %d heard of the %s after %.2f s\n", describe(here.world).c_str(), here.rank,
              what, std::chrono::duration<double>(took).count());
  EXPECT_GE(took, kDeadAfter - 50ms);
  EXPECT_LT(took, kDeadAfter + kBound);
}

World world_of(WorldKind kind, int size, std::function<void(Config&)> tune) {
  return {.kind = kind, .size = size, .tune = std::move(tune)};
}

TEST(Silence, of_a_stopped_rank_ends_everybody_naming_it) {
  for (const WorldKind kind : worlds_of_processes()) {
    World world = world_of(kind, 3, dead_after(kDeadAfter));
    world.doomed = {1};
    run(world, [](Context& here) {
      ASSERT_TRUE(here.group->barrier().ok());
      meet(here);
      const auto began = Clock::now();
      if (here.rank == 1) raise(SIGSTOP);
      std::vector<float> values(100'003, 1.0F);
      const Status status = here.group->all_reduce(Buffer::of(values), ReduceOp::sum);
      expect_silent(status, 1);
      expect_in_bound(began, here, "stop");
    });
  }
}

// Of twelve ranks four are linked to rank 5. The others hear of its silence from those, and find that it does not
// answer them either; rank 2 just then wants to hear from it.
TEST(Silence, of_a_rank_without_a_link_ends_everybody_naming_it) {
  World world = world_of(WorldKind::tcp, 12, dead_after(kPatience));
  world.tune = [tune = world.tune](Config& config) {
    tune(config);
    config.links = "lazy";
  };
  world.doomed = {5};
  run(world, [](Context& here) {
    ASSERT_TRUE(here.group->barrier().ok());
    meet(here);
    const auto began = Clock::now();
    if (here.rank == 5) raise(SIGSTOP);
    int nothing = 0;
    const int source = here.rank == 2 ? 5 : kAnySource;
    const Status status = here.group->recv(Buffer::of(&nothing, 1), source).status();
    expect_silent(status, 5);
    const auto took = Clock::now() - began;
    EXPECT_GE(took, kDeadAfter - 50ms);
    EXPECT_LT(took, kDeadAfter + 4 * kBound);  // twelve processes share the cores of a busy machine
  });
}

// Without a progress thread too, and with as much on its way to it as fits.
TEST(Silence, of_a_stopped_rank_with_a_full_window_is_told_as_soon) {
  World world = world_of(WorldKind::tcp, 2, dead_after(kDeadAfter, false));
  world.doomed = {1};
  run(world, [](Context& here) {
    ASSERT_TRUE(here.group->barrier().ok());
    std::vector<float> much(kMuch), back(kMuch);
    meet(here);
    const auto began = Clock::now();
    if (here.rank == 1) raise(SIGSTOP);
    Work out = here.group->isend(ConstBuffer::of(much), 1);
    Work in = here.group->irecv(Buffer::of(back), 1);
    expect_silent(out.wait(), 1);
    expect_silent(in.wait(), 1);
    expect_in_bound(began, here, "stop");
  });
}

// Both ways much is under way: one of them is stopped for half of dead_after in the middle of it.
TEST(Silence, shorter_than_dead_after_is_no_death) {
  for (const WorldKind kind : {WorldKind::shm, WorldKind::tcp})
    run(world_of(kind, 2, dead_after(kPatience)), [](Context& here) {
      tell_pid(here);
      ASSERT_TRUE(here.group->barrier().ok());
      const int peer = 1 - here.rank;
      std::vector<float> out(kMuch, 1.0F), in(kMuch);
      Work sent = here.group->isend(ConstBuffer::of(out), peer);
      if (here.rank == 0) {
        const pid_t pid = pid_of(here, peer);
        ASSERT_EQ(kill(pid, SIGSTOP), 0);
        std::this_thread::sleep_for(kPatience / 2);
        ASSERT_EQ(kill(pid, SIGCONT), 0);
      }
      const Status got = here.group->recv(Buffer::of(in), peer).status();
      EXPECT_TRUE(got.ok()) << got.to_string();
      const Status gone = sent.wait();
      EXPECT_TRUE(gone.ok()) << gone.to_string();
      const Status together = here.group->barrier();
      EXPECT_TRUE(together.ok()) << together.to_string();
    });
}

TEST(Silence, of_one_who_computes_without_a_progress_thread_is_none) {
  run(world_of(WorldKind::tcp, 2, dead_after(kDeadAfter, false)), [](Context& here) {
    ASSERT_TRUE(here.group->barrier().ok());
    const int peer = 1 - here.rank;
    std::vector<float> out(kMuch, 1.0F), in(kMuch);
    Work sent = here.group->isend(ConstBuffer::of(out), peer);
    Work got = here.group->irecv(Buffer::of(in), peer);
    // A little of it has left, and the rest waits for somebody who polls.
    (void)got.wait(10ms);
    if (here.rank == 1) std::this_thread::sleep_for(5 * kDeadAfter / 2);
    for (Work* work : {&sent, &got}) {
      const Status status = work->wait();
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
  });
}

// It was given up rightly, and shall not say that the others went.
TEST(Silence, is_blamed_by_the_one_who_stood_still_on_itself) {
  for (const WorldKind kind : {WorldKind::shm, WorldKind::tcp})
    run(world_of(kind, 3, dead_after(kDeadAfter)), [](Context& here) {
      tell_pid(here);
      ASSERT_TRUE(here.group->barrier().ok());
      meet(here);
      if (here.rank == 2) {
        Status status;
        while (status.ok()) status = here.group->barrier();
        EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
        EXPECT_EQ(status.peer(), 2) << status.to_string();
        return;
      }
      if (here.rank == 0) {
        ASSERT_EQ(kill(pid_of(here, 2), SIGSTOP), 0);
      }
      Status status;
      while (status.ok()) status = here.group->barrier();
      expect_silent(status, 2);
      if (here.rank == 0) {
        std::this_thread::sleep_for(300ms);
        EXPECT_EQ(kill(pid_of(here, 2), SIGCONT), 0);
      }
    });
}

// Everybody stands still for longer than dead_after, as on a terminal's ^Z, and goes on.
void suspend_the_job(Context& here, std::chrono::microseconds time) {
  tell_pid(here);
  ASSERT_TRUE(here.group->barrier().ok());
  if (here.rank != 0) return;
  std::vector<pid_t> job;
  for (int rank = 0; rank < here.size; ++rank) job.push_back(pid_of(here, rank));
  if (const pid_t waker = fork(); waker == 0) {
    for (const pid_t pid : job) kill(pid, SIGSTOP);
    usleep(static_cast<useconds_t>(time.count()));
    for (const pid_t pid : job) kill(pid, SIGCONT);
    _exit(0);
  }
}

TEST(Silence, of_the_whole_job_is_nobodys_fault) {
  for (const WorldKind kind : {WorldKind::shm, WorldKind::tcp})
    run(world_of(kind, 2, dead_after(kDeadAfter)), [](Context& here) {
      suspend_the_job(here, 3 * kDeadAfter / 2);
      for (int i = 0; i < 5; ++i) {
        std::this_thread::sleep_for(100ms);
        const Status status = here.group->barrier();
        ASSERT_TRUE(status.ok()) << status.to_string();
      }
    });
}

// And who dies soon after is blamed by name: the survivors stood still too, but nobody gave them up.
TEST(Silence, of_the_whole_job_does_not_hide_a_death_that_follows) {
  World world = world_of(WorldKind::tcp, 3, dead_after(kDeadAfter));
  world.doomed = {2};
  run(world, [](Context& here) {
    suspend_the_job(here, 5 * kDeadAfter / 4);
    Status status;
    for (int i = 0; status.ok(); ++i) {
      std::this_thread::sleep_for(100ms);
      if (here.rank == 2 && i == 4) raise(SIGKILL);
      status = here.group->barrier();
    }
    EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
    EXPECT_EQ(status.peer(), 2) << status.to_string();
  });
}

// ---- between hosts

bool on_this_host(const std::string& command) { return std::system(command.c_str()) == 0; }

class Partition : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = unavailable({.kind = WorldKind::mixed, .size = 4})) GTEST_SKIP() << *why;
  }
  // Ranks 0 and 1 on one side, 2 and 3 on the other; `cut` is done on rank 0's host.
  // `one_way`: these still hear the others, until they are silent or close the connections that can be closed.
  static void expect_both_sides_to_agree(const std::string& cut, bool one_way) {
    run(world_of(WorldKind::mixed, 4, dead_after(kDeadAfter)), [&](Context& here) {
      ASSERT_TRUE(here.group->barrier().ok());
      meet(here);
      const auto began = Clock::now();
      if (here.rank == 0) {
        std::this_thread::sleep_for(50ms);  // the store's last answers go the same way
        ASSERT_TRUE(on_this_host(cut));
      }
      std::vector<float> values(100'003, 1.0F);
      Status status;
      while (status.ok()) status = here.group->all_reduce(Buffer::of(values), ReduceOp::sum);
      const int first = here.rank < 2 ? 2 : 0;  // of the other side
      if (one_way) {  // whose last sign came a moment earlier depends on the machine
        EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
        EXPECT_TRUE(status.peer() == first || status.peer() == first + 1) << status.to_string();
      } else {
        expect_silent(status, first);
      }
      // A cut in one direction is heard a little later on the side that still hears.
      const auto took = Clock::now() - began;
      EXPECT_LT(took, kDeadAfter + 3 * kBound / 2) << status.to_string();
      std::printf("%s: rank %d after %.2f s: %s\n", cut.c_str(), here.rank,
                  std::chrono::duration<double>(took).count(), status.message().c_str());
    });
  }
};

TEST_F(Partition, ends_each_side_with_one_verdict) {
  expect_both_sides_to_agree("ip link set cable down", false);
}

TEST_F(Partition, one_way_ends_each_side_with_one_verdict) {
  expect_both_sides_to_agree("ip route add blackhole 10.213.0.2/32", true);
}

TEST_F(Partition, that_heals_in_time_is_no_death) {
  run(world_of(WorldKind::mixed, 4, dead_after(kPatience)), [](Context& here) {
    ASSERT_TRUE(here.group->barrier().ok());
    meet(here);
    if (here.rank == 0) {
      std::this_thread::sleep_for(50ms);
      ASSERT_TRUE(on_this_host("ip route add blackhole 10.213.0.2/32"));
      std::this_thread::sleep_for(kPatience / 2);
      ASSERT_TRUE(on_this_host("ip route del blackhole 10.213.0.2/32"));
    }
    std::vector<float> values(100'003, 1.0F);
    for (int i = 0; i < 3; ++i) {
      const Status status = here.group->all_reduce(Buffer::of(values), ReduceOp::sum);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
  });
}

// ---- slow, but alive

// What all together write of rank 1, which is late for a while.
void expect_one_warning(int ranks, const std::string& links) {
  char path[] = "/tmp/tutti-slow-XXXXXX";
  const int file = mkstemp(path);
  ASSERT_GE(file, 0);
  run(world_of(WorldKind::tcp, ranks,
               [&](Config& config) {
                 config.links = links;
                 config.debug = "WARN";
                 config.debug_file = path;
               }),
      [](Context& here) {
        ASSERT_TRUE(here.group->barrier().ok());
        if (here.rank == 1) std::this_thread::sleep_for(4500ms);
        std::vector<float> values(100, 1.0F);
        const Status status = here.group->all_reduce(Buffer::of(values), ReduceOp::sum);
        EXPECT_TRUE(status.ok()) << status.to_string();
      });
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, pread(file, text.data(), 4096, 0))));
  close(file);
  unlink(path);
  for (const char* word : {"rank 1 (", "did not join all_reduce", "barrier"})
    EXPECT_NE(text.find(word), std::string::npos) << "should say " << word << ": " << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST(Slowness, is_named_after_three_seconds_and_kills_nobody) { expect_one_warning(3, "eager"); }

// Several miss it there, and none of them need hear of the others.
TEST(Slowness, is_named_once_where_links_are_made_at_their_first_use) {
  expect_one_warning(12, "lazy");
}

}  // namespace
}  // namespace tutti::test
