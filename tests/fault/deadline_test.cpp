// A rank that does not come is named, with what it is doing instead, when the deadline passes.
#include <signal.h>
#include <unistd.h>

#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

constexpr std::chrono::seconds kAfterDeadline{5};  // beyond the deadline

CallOptions within(std::chrono::milliseconds timeout) {
  CallOptions options;
  options.timeout = timeout;
  return options;
}

// Rank 0, a middle one and the last are late in turn, each in a group of its own: a deadline ends it.
void with_each_late_rank(
    Context& here,
    const std::function<void(std::shared_ptr<Group>, int late, const std::string& key)>& body) {
  for (const int late : {0, here.size / 2, here.size - 1}) {
    SCOPED_TRACE("late: rank " + std::to_string(late));
    auto group = here.group->duplicate();
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    body(*group, late, "timed out without " + std::to_string(late));
  }
}

void expect_timed_out(const Status& status, int late, const std::string& instead = "") {
  EXPECT_EQ(status.code(), Code::timed_out) << status.to_string();
  EXPECT_EQ(status.peer(), late) << status.to_string();
  for (const std::string& word :
       {"rank " + std::to_string(late), std::string("all_reduce"), instead})
    EXPECT_NE(status.message().find(word), std::string::npos)
        << "should say " << word << ": " << status.to_string();
}

class Deadline : public WorldTest {};

TEST_P(Deadline, names_the_rank_that_is_late_and_its_last_operation) {
  in_world([](Context& here) {
    with_each_late_rank(here, [&](std::shared_ptr<Group> group, int late, const std::string& key) {
      std::vector<float> values(100);
      ASSERT_TRUE(group->barrier().ok());
      ASSERT_TRUE(group->broadcast(Buffer::of(values), 0).ok());
      // Before anybody's call: the first deadline to pass ends them all.
      const auto before = std::chrono::steady_clock::now();
      meet(here, "before " + key);
      if (here.rank == late) {
        ASSERT_TRUE(here.store->wait(key, std::chrono::seconds(30)).ok());
        // Whoever comes late learns what happened.
        const Status status = group->all_reduce(Buffer::of(values), ReduceOp::sum);
        EXPECT_EQ(status.code(), Code::timed_out) << status.to_string();
        return;
      }
      const auto timeout = std::chrono::milliseconds(700);
      const auto begin = std::chrono::steady_clock::now();
      const Status status = group->all_reduce(Buffer::of(values), ReduceOp::sum, within(timeout));
      EXPECT_GE(std::chrono::steady_clock::now() - before, timeout);
      EXPECT_LT(std::chrono::steady_clock::now() - begin, timeout + kAfterDeadline);
      expect_timed_out(status, late, "broadcast");
      ASSERT_TRUE(here.store->set(key, "").ok());
      EXPECT_EQ(group->barrier().code(), Code::timed_out);
      EXPECT_EQ(group->health().code(), Code::timed_out);
    });
  });
}

TEST_P(Deadline, names_a_rank_that_called_nothing_at_all) {
  in_world([](Context& here) {
    with_each_late_rank(here, [&](std::shared_ptr<Group> group, int late, const std::string& key) {
      std::vector<float> values(100);
      if (here.rank == late) {
        ASSERT_TRUE(here.store->wait(key, std::chrono::seconds(30)).ok());
        return;
      }
      expect_timed_out(group->all_reduce(Buffer::of(values), ReduceOp::sum,
                                         within(std::chrono::milliseconds(500))),
                       late);
      ASSERT_TRUE(here.store->set(key, "").ok());
    });
  });
}

TEST_P(Deadline, ends_a_receive_that_nobody_sends_to) {
  in_world([](Context& here) {
    std::vector<float> values(100);
    if (here.rank == 0) {
      for (int silent = 1; silent < here.size; ++silent) {
        const auto received =
            here.group->recv(Buffer::of(values), silent, 3, within(std::chrono::milliseconds(300)));
        EXPECT_EQ(received.status().code(), Code::timed_out) << received.status().to_string();
        EXPECT_NE(received.status().message().find("rank " + std::to_string(silent)),
                  std::string::npos)
            << received.status().to_string();
      }
      ASSERT_TRUE(here.store->set("done", "").ok());
    } else {
      ASSERT_TRUE(here.store->wait("done", std::chrono::seconds(30)).ok());
    }
  });
}

// In a ring the rank that is waited for waits itself, for another; the one at fault is to be named.
TEST(DistantDeadline, names_the_rank_at_fault_not_the_one_in_between) {
  for (Algorithm algorithm :
       {Algorithm::ring, Algorithm::recursive_doubling, Algorithm::binomial_tree}) {
    SCOPED_TRACE(to_string(algorithm));
    run(World{.size = 8}, [algorithm](Context& here) {
      with_each_late_rank(
          here, [&](std::shared_ptr<Group> group, int late, const std::string& key) {
            std::vector<float> values(100);
            if (here.rank == late) {
              ASSERT_TRUE(here.store->wait(key, std::chrono::seconds(30)).ok());
              return;
            }
            CallOptions options = within(std::chrono::milliseconds(500));
            options.algorithm = algorithm;
            expect_timed_out(group->all_reduce(Buffer::of(values), ReduceOp::sum, options), late);
            ASSERT_TRUE(here.store->set(key, "").ok());
          });
    });
  }
}

INSTANTIATE_TEST_SUITE_P(World, Deadline, testing::ValuesIn(one_world_of_each()), name_of);

class StoppedRank : public WorldTest {};

TEST_P(StoppedRank, is_named_at_the_deadline_and_others_go_on_without_it) {
  in_world([](Context& here) {
    const int stopped = here.world.doomed.front();
    auto others = here.group->split(here.rank == stopped ? -1 : 0, 0);
    ASSERT_TRUE(others.ok());
    ASSERT_TRUE(here.group->barrier().ok());
    meet(here);
    if (here.rank == stopped) kill(getpid(), SIGSTOP);
    std::vector<float> values(100'003);
    const auto timeout = std::chrono::seconds(1);
    const auto begin = std::chrono::steady_clock::now();
    expect_timed_out(here.group->all_reduce(Buffer::of(values), ReduceOp::sum, within(timeout)),
                     stopped);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, timeout + kAfterDeadline);
    try_out(**others, {.count = 5003});
  });
}

INSTANTIATE_TEST_SUITE_P(World, StoppedRank,
                         testing::ValuesIn(each_victim_in({{.kind = WorldKind::shm, .size = 3},
                                                           {.kind = WorldKind::tcp, .size = 3}})),
                         name_of);

// A rank that sleeps through the failure and wakes up later must not write into memory that the
// others use for something else by then.
TEST(StoppedForAWhile, learns_what_happened_when_it_wakes_up) {
  for (WorldKind kind : {WorldKind::shm, WorldKind::tcp}) {
    run(World{.kind = kind, .size = 3}, [](Context& here) {
      constexpr int kLate = 1;
      ASSERT_TRUE(here.group->barrier().ok());
      meet(here);
      std::vector<float> values(100'003);
      if (here.rank == kLate) {
        ASSERT_TRUE(here.store->set("pid", std::to_string(getpid())).ok());
        kill(getpid(), SIGSTOP);
        EXPECT_EQ(here.group->all_reduce(Buffer::of(values), ReduceOp::sum).code(),
                  Code::timed_out);
        return;
      }
      const auto pid = here.store->get("pid", std::chrono::seconds(30));
      ASSERT_TRUE(pid.ok());
      expect_timed_out(here.group->all_reduce(Buffer::of(values), ReduceOp::sum,
                                              within(std::chrono::milliseconds(700))),
                       kLate);
      const auto ended = here.store->add("ended", 1);
      ASSERT_TRUE(ended.ok());
      if (*ended == 2) kill(std::stoi(*pid), SIGCONT);
    });
  }
}

}  // namespace
}  // namespace tutti::test
