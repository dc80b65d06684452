// Works: many in flight, callbacks, waits from other threads, waits that give up.
#include <atomic>
#include <future>
#include <thread>

#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

class Works : public WorldTest {};

TEST_P(Works, may_be_many_at_once_and_are_waited_for_in_any_order) {
  in_world([](Context& here) {
    std::list<Trial> trials;
    std::vector<Work> works;
    for (int i = 0; i < (reduced() ? 40 : 150); ++i) {
      Case what{.collective = static_cast<Collective>(i % kCollectives), .dtype = Dtype::i32};
      what.count = i % 10 == 0 ? 20'011 : 50;
      what.root = i % here.size;
      what.seed = static_cast<std::uint64_t>(i) + 1;
      trials.emplace_back(*here.group, what);
      works.push_back(trials.back().start());
    }
    for (std::size_t i = works.size(); i-- > 0;) EXPECT_TRUE(works[i].wait().ok());
    std::size_t i = 0;
    for (Trial& trial : trials) trial.check(works[i++].status());
  });
}

TEST_P(Works, finish_without_anybody_waiting) {
  in_world([](Context& here) {
    Trial trial(*here.group, {.count = 4099});
    std::promise<Status> finished;
    Work work = trial.start();
    work.on_complete([&](const Status& status) { finished.set_value(status); });
    auto outcome = finished.get_future();
    ASSERT_EQ(outcome.wait_for(std::chrono::seconds(30)), std::future_status::ready);
    trial.check(outcome.get());
    EXPECT_TRUE(work.done());
  });
}

TEST_P(Works, finish_without_anybody_waiting_after_a_row_that_was_waited_for) {
  in_world([](Context& here) {
    std::vector<std::int32_t> values(3, 1);
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 20; ++i)
        EXPECT_TRUE(here.group->all_reduce_async(Buffer::of(values), ReduceOp::max).wait().ok());
      Trial trial(*here.group, {.count = 4099});
      std::promise<Status> finished;
      trial.start().on_complete([&](const Status& status) { finished.set_value(status); });
      auto outcome = finished.get_future();
      ASSERT_EQ(outcome.wait_for(std::chrono::seconds(30)), std::future_status::ready);
      trial.check(outcome.get());
    }
  });
}

TEST_P(Works, call_back_once_and_callbacks_may_start_operations) {
  in_world([](Context& here) {
    constexpr int kLinks = 20;
    std::vector<std::int32_t> values(kLinks, here.rank);
    std::atomic<int> calls{0};
    std::promise<void> end;
    std::function<void(int)> link = [&](int i) {
      Work work = here.group->all_reduce_async(Buffer::of(&values[static_cast<std::size_t>(i)], 1),
                                               ReduceOp::sum);
      work.on_complete([&, i](const Status& status) {
        EXPECT_TRUE(status.ok()) << status.to_string();
        ++calls;
        if (i + 1 < kLinks)
          link(i + 1);
        else
          end.set_value();
      });
    };
    link(0);
    ASSERT_EQ(end.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
    EXPECT_EQ(calls, kLinks);
    for (std::int32_t value : values) EXPECT_EQ(value, here.size * (here.size - 1) / 2);
  });
}

TEST_P(Works, that_are_done_call_back_at_once) {
  in_world([](Context& here) {
    Work work = here.group->barrier_async();
    EXPECT_TRUE(work.wait().ok());
    bool called = false;
    work.on_complete([&](const Status& status) { called = status.ok(); });
    EXPECT_TRUE(called);
  });
}

TEST_P(Works, may_be_waited_for_by_several_threads) {
  in_world([](Context& here) {
    for (int round = 0; round < 10; ++round) {
      Trial trial(*here.group, {.count = 20'011, .seed = static_cast<std::uint64_t>(round) + 1});
      Work work = trial.start();
      std::vector<std::thread> waiters;
      for (int i = 0; i < 3; ++i)
        waiters.emplace_back([work]() mutable { EXPECT_TRUE(work.wait().ok()); });
      for (std::thread& waiter : waiters) waiter.join();
      trial.check(work.status());
    }
  });
}

TEST_P(Works, go_on_after_a_wait_gave_up) {
  in_world([](Context& here) {
    std::vector<std::int32_t> values{here.rank + 1};
    Work work;
    const auto start = [&] {
      work = here.group->all_reduce_async(Buffer::of(values), ReduceOp::sum);
    };
    const int last = here.size - 1;
    if (here.rank != last) {
      start();
      const Status early = work.wait(std::chrono::milliseconds(20));
      EXPECT_EQ(early.code(), Code::timed_out) << early.to_string();
      EXPECT_FALSE(work.done());
      const auto gave_up = here.store->add("gave up", 1);
      ASSERT_TRUE(gave_up.ok());
      if (*gave_up == last) {
        ASSERT_TRUE(here.store->set("all gave up", "").ok());
      }
    }
    if (here.rank == last) {
      ASSERT_TRUE(here.store->wait("all gave up", std::chrono::seconds(30)).ok());
      start();
    }
    EXPECT_TRUE(work.wait().ok());
    EXPECT_EQ(values[0], here.size * (here.size + 1) / 2);
  });
}

TEST_P(Works, that_nobody_holds_go_on) {
  in_world([](Context& here) {
    std::vector<std::int32_t> values(1000, here.rank);
    (void)here.group->all_reduce_async(Buffer::of(values), ReduceOp::sum);
    ASSERT_TRUE(here.group->barrier().ok());
    EXPECT_EQ(values, std::vector<std::int32_t>(1000, here.size * (here.size - 1) / 2));
  });
}

TEST_P(Works, are_driven_by_waits_when_there_is_no_progress_thread) {
  World world = GetParam();
  world.tune = [](Config& config) { config.progress_thread = false; };
  run(world, [](Context& here) {
    for (int c = 0; c < kCollectives; ++c)
      try_out_async(*here.group, {.collective = static_cast<Collective>(c), .count = 4099});
  });
}

INSTANTIATE_TEST_SUITE_P(World, Works, testing::ValuesIn(one_world_of_each()), name_of);

}  // namespace
}  // namespace tutti::test
