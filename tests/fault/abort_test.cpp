// Group::abort reaches every rank, and no other group.
#include <atomic>
#include <thread>

#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

class Abort : public WorldTest {};

void expect_aborted(const Status& status) {
  EXPECT_EQ(status.code(), Code::aborted) << status.to_string();
  EXPECT_NE(status.message().find("the soup is cold"), std::string::npos) << status.to_string();
}

TEST_P(Abort, ends_pending_and_later_operations_on_every_rank) {
  in_world([](Context& here) {
    auto group = here.group->duplicate();
    ASSERT_TRUE(group.ok());
    std::vector<float> values(1000), message(10);
    if (here.rank == 0) {
      ASSERT_TRUE(here.store->wait("waiting", std::chrono::seconds(30)).ok());
      (*group)->abort("the soup is cold");
    } else {
      Work sum = (*group)->all_reduce_async(Buffer::of(values), ReduceOp::sum);
      Work receive = (*group)->irecv(Buffer::of(message), 0);
      ASSERT_TRUE(here.store->set("waiting", "").ok());
      expect_aborted(sum.wait());
      expect_aborted(receive.wait());
    }
    expect_aborted((*group)->barrier());
    expect_aborted((*group)->health());
    try_out(*here.group, {.count = 1000});
  });
}

TEST_P(Abort, may_come_from_another_thread_while_one_waits) {
  in_world([](Context& here) {
    auto group = here.group->duplicate();
    ASSERT_TRUE(group.ok());
    if (here.rank == 1) {  // never calls; the others would wait for it for ever
      expect_aborted((*group)->recv(Buffer{nullptr, 0, Dtype::u8}, 0, 77).status());
      return;
    }
    std::thread other;
    Work barrier = (*group)->barrier_async();
    if (here.rank == 0) other = std::thread([&] { (*group)->abort("the soup is cold"); });
    expect_aborted(barrier.wait());
    if (other.joinable()) other.join();
  });
}

// Threads of one world share it; only rank 0's calls ask.
std::atomic<bool> signalled{false};

TEST_P(Abort, of_a_blocking_call_that_was_interrupted_ends_the_group) {
  in_world([](Context& here) {
    auto group = here.group->duplicate();
    ASSERT_TRUE(group.ok());
    Status status;
    if (here.rank == 0) {
      signalled = false;
      CallOptions options;
      options.interrupted = [] { return signalled.exchange(true); };  // from the second time on
      status = (*group)->barrier(options);
      EXPECT_TRUE(here.store->set("interrupted", "").ok());
    } else {
      ASSERT_TRUE(here.store->wait("interrupted", std::chrono::seconds(30)).ok());
      status = (*group)->barrier();
    }
    EXPECT_EQ(status.code(), Code::aborted) << status.to_string();
    EXPECT_NE(status.message().find("rank 0 was interrupted"), std::string::npos)
        << status.to_string();
    try_out(*here.group, {.count = 1000});
  });
}

INSTANTIATE_TEST_SUITE_P(World, Abort, testing::ValuesIn(one_world_of_each()), name_of);

}  // namespace
}  // namespace tutti::test
