// A rank that does not come is named, with what it is doing instead, when the deadline passes.
#include <signal.h>
#include <unistd.h>

#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

constexpr int kLate = 1;

CallOptions within(std::chrono::milliseconds timeout) {
  CallOptions options;
  options.timeout = timeout;
  return options;
}

void expect_timed_out(const Status& status, const std::string& instead) {
  EXPECT_EQ(status.code(), Code::timed_out) << status.to_string();
  for (const std::string& word :
       {"rank " + std::to_string(kLate), std::string("all_reduce"), instead})
    EXPECT_NE(status.message().find(word), std::string::npos)
        << "should say " << word << ": " << status.to_string();
}

class Deadline : public WorldTest {};

TEST_P(Deadline, names_the_rank_that_is_late_and_its_last_operation) {
  in_world([](Context& here) {
    std::vector<float> values(100);
    ASSERT_TRUE(here.group->barrier().ok());
    ASSERT_TRUE(here.group->broadcast(Buffer::of(values), 0).ok());
    meet(here);
    if (here.rank == kLate) {
      ASSERT_TRUE(here.store->wait("0 timed out", std::chrono::seconds(30)).ok());
      // Whoever comes late learns what happened.
      const Status status = here.group->all_reduce(Buffer::of(values), ReduceOp::sum);
      EXPECT_EQ(status.code(), Code::timed_out) << status.to_string();
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    const Status status = here.group->all_reduce(Buffer::of(values), ReduceOp::sum,
                                                 within(std::chrono::milliseconds(700)));
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(took, std::chrono::milliseconds(600));
    EXPECT_LT(took, std::chrono::seconds(8));
    expect_timed_out(status, "broadcast");
    ASSERT_TRUE(here.store->set(std::to_string(here.rank) + " timed out", "").ok());
    EXPECT_EQ(here.group->barrier().code(), Code::timed_out);
    EXPECT_EQ(here.group->health().code(), Code::timed_out);
  });
}

TEST_P(Deadline, names_a_rank_that_called_nothing_at_all) {
  in_world([](Context& here) {
    std::vector<float> values(100);
    if (here.rank == kLate) {
      ASSERT_TRUE(here.store->wait("0 timed out", std::chrono::seconds(30)).ok());
      return;
    }
    expect_timed_out(here.group->all_reduce(Buffer::of(values), ReduceOp::sum,
                                            within(std::chrono::milliseconds(500))),
                     "");
    ASSERT_TRUE(here.store->set(std::to_string(here.rank) + " timed out", "").ok());
  });
}

TEST_P(Deadline, ends_a_receive_that_nobody_sends_to) {
  in_world([](Context& here) {
    std::vector<float> values(100);
    if (here.rank == 0) {
      const auto received =
          here.group->recv(Buffer::of(values), kLate, 3, within(std::chrono::milliseconds(300)));
      EXPECT_EQ(received.status().code(), Code::timed_out) << received.status().to_string();
      EXPECT_NE(received.status().message().find("rank 1"), std::string::npos)
          << received.status().to_string();
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
      std::vector<float> values(100);
      if (here.rank == kLate) {
        ASSERT_TRUE(here.store->wait("timed out", std::chrono::seconds(30)).ok());
        return;
      }
      CallOptions options = within(std::chrono::milliseconds(500));
      options.algorithm = algorithm;
      expect_timed_out(here.group->all_reduce(Buffer::of(values), ReduceOp::sum, options), "");
      ASSERT_TRUE(here.store->set("timed out", "").ok());
    });
  }
}

INSTANTIATE_TEST_SUITE_P(World, Deadline, testing::ValuesIn(one_world_of_each()), name_of);

TEST(StoppedRank, is_named_at_the_deadline_and_others_go_on_without_it) {
  for (WorldKind kind : {WorldKind::shm, WorldKind::tcp}) {
    World world{.kind = kind, .size = 3};
    world.doomed = {kLate};
    run(world, [](Context& here) {
      auto others = here.group->split(here.rank == kLate ? -1 : 0, 0);
      ASSERT_TRUE(others.ok());
      ASSERT_TRUE(here.group->barrier().ok());
      meet(here);
      if (here.rank == kLate) kill(getpid(), SIGSTOP);
      std::vector<float> values(100'003);
      const auto begin = std::chrono::steady_clock::now();
      expect_timed_out(here.group->all_reduce(Buffer::of(values), ReduceOp::sum,
                                              within(std::chrono::seconds(1))),
                       "");
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
      try_out(**others, {.count = 5003});
    });
  }
}

// A rank that sleeps through the failure and wakes up later must not write into memory that the
// others use for something else by then.
TEST(StoppedRank, that_wakes_up_late_learns_what_happened) {
  for (WorldKind kind : {WorldKind::shm, WorldKind::tcp}) {
    run(World{.kind = kind, .size = 3}, [](Context& here) {
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
                       "");
      const auto ended = here.store->add("ended", 1);
      ASSERT_TRUE(ended.ok());
      if (*ended == 2) kill(std::stoi(*pid), SIGCONT);
    });
  }
}

}  // namespace
}  // namespace tutti::test
