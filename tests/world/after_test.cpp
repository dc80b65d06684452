// Operations that begin after works of other groups.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <thread>

#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kCount = 5003;

using Values = std::vector<std::int32_t>;

std::shared_ptr<Group> copy_of(Context& here, const char* name) {
  auto made = here.group->duplicate({.name = name});
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? *made : nullptr;
}

int next(const Context& here) { return (here.rank + 1) % here.size; }
int previous(const Context& here) { return (here.rank + here.size - 1) % here.size; }

// What ranks 1 … n bring adds up to.
int sum_of_ranks(const Context& here) { return here.size * (here.size + 1) / 2; }

// Works end whoever drives: the progress thread, or whoever waits for what comes after them.
World driven_by_callers(World world) {
  world.tune = [](Config& config) { config.progress_thread = false; };
  return world;
}

class After : public WorldTest {};

// Its input is what the other work brings: only after that the sum is right.
void add_up_what_comes_round(Context& here, bool blocking) {
  const auto ring = copy_of(here, "ring"), sums = copy_of(here, "sums");
  for (int turn = 0; turn < 5; ++turn) {
    const Values sent(kCount, here.rank + turn);
    Values come(kCount, -1);
    const Work send = ring->isend(ConstBuffer::of(sent), next(here));
    const Work recv = ring->irecv(Buffer::of(come), previous(here));
    const CallOptions after = CallOptions{}.after(recv).after(send);
    Status status;
    if (blocking)
      status = sums->all_reduce(Buffer::of(come), ReduceOp::sum, after);
    else
      status = sums->all_reduce_async(Buffer::of(come), ReduceOp::sum, after).wait();
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(recv.done() && send.done());
    EXPECT_EQ(come, Values(kCount, sum_of_ranks(here) + here.size * (turn - 1)));
  }
}

TEST_P(After, a_collective_begins_when_messages_of_another_group_have_come) {
  in_world([](Context& here) {
    add_up_what_comes_round(here, false);
    add_up_what_comes_round(here, true);
  });
}

TEST_P(After, whoever_waits_drives_what_is_waited_for_where_nobody_else_does) {
  run(driven_by_callers(GetParam()), [](Context& here) {
    add_up_what_comes_round(here, false);
    add_up_what_comes_round(here, true);
  });
}

TEST_P(After, groups_hand_a_buffer_on_without_anybody_waiting) {
  in_world([](Context& here) {
    const auto down = copy_of(here, "down"), up = copy_of(here, "up"),
               check = copy_of(here, "check");
    const auto ranks = static_cast<std::size_t>(here.size);
    Values all(kCount * ranks, here.rank + 1), largest(all.size());
    std::vector<Work> works;
    Work last;
    for (int turn = 0; turn < 8; ++turn) {
      const Buffer mine =
          Buffer::of(all.data() + kCount * static_cast<std::size_t>(here.rank), kCount);
      last = down->reduce_scatter_async(Buffer::of(all), mine,
                                        turn == 0 ? ReduceOp::sum : ReduceOp::max,
                                        CallOptions{}.after(last));
      works.push_back(last);
      last = up->all_gather_async(mine, Buffer::of(all), CallOptions{}.after(last));
      works.push_back(last);
    }
    const Work checked = check->all_reduce_async(Buffer::of(all), Buffer::of(largest),
                                                 ReduceOp::max, CallOptions{}.after(last));
    EXPECT_TRUE(Work(checked).wait().ok());
    for (const Work& work : works) EXPECT_TRUE(work.done() && work.status().ok());
    EXPECT_EQ(largest, Values(all.size(), sum_of_ranks(here)));
  });
}

TEST_P(After, messages_leave_and_land_when_a_collective_is_done) {
  in_world([](Context& here) {
    const auto sums = copy_of(here, "sums"), ring = copy_of(here, "ring");
    for (const std::size_t count : {std::size_t{3}, std::size_t{50'021}}) {
      Values values(count, here.rank + 1);
      const Work sum = sums->all_reduce_async(Buffer::of(values), ReduceOp::sum);
      // Into the same memory: it must not come before the sum is done, nor before that has left.
      Values kept(count, -1);
      const Work copied =
          ring->irecv(Buffer::of(kept), previous(here), 1, CallOptions{}.after(sum));
      const Work sent =
          ring->isend(ConstBuffer::of(values), next(here), 1, CallOptions{}.after(sum));
      const Values own(count, here.rank);
      const Work landed =
          ring->irecv(Buffer::of(values), previous(here), 2, CallOptions{}.after(sent));
      Work left = ring->isend(ConstBuffer::of(own), next(here), 2);
      EXPECT_TRUE(Work(landed).wait().ok() && left.wait().ok() && Work(copied).wait().ok());
      EXPECT_EQ(kept, Values(count, sum_of_ranks(here)));
      EXPECT_EQ(values, Values(count, previous(here)));
    }
  });
}

// One that waits is not overtaken by those behind it with the same tag; another tag passes.
void keep_order(Context& here, Group& gates, Group& ring, bool holds_send, bool holds_recv) {
  const std::vector<std::int32_t> sent = {1, 2, 3};
  std::vector<std::int32_t> come(3, 0);
  std::int32_t opened = 0, other = 0;
  const Work gate = gates.irecv(Buffer::of(&opened, 1), previous(here));
  const CallOptions at_once, held = CallOptions{}.after(gate);
  std::vector<Work> recvs, sends;
  for (std::size_t i = 0; i < 3; ++i) {
    recvs.push_back(ring.irecv(Buffer::of(&come[i], 1), previous(here), 7,
                               i == 1 && holds_recv ? held : at_once));
    sends.push_back(ring.isend(ConstBuffer::of(&sent[i], 1), next(here), 7,
                               i == 1 && holds_send ? held : at_once));
  }
  Work passed = ring.isend(ConstBuffer::of(&sent[2], 1), next(here), 8);
  EXPECT_TRUE(ring.recv(Buffer::of(&other, 1), kAnySource, 8).ok());
  EXPECT_TRUE(passed.wait().ok() && recvs[0].wait().ok());
  EXPECT_EQ(other, 3);
  EXPECT_EQ(come, (Values{1, 0, 0}));
  EXPECT_FALSE(recvs[1].done() || recvs[2].done());
  meet(here, fmt::format("gate {} {}", holds_send, holds_recv));
  EXPECT_TRUE(gates.send(ConstBuffer::of(&sent[0], 1), next(here)).ok());
  for (auto* works : {&recvs, &sends})
    for (Work& work : *works) {
      const Status status = work.wait();
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
  EXPECT_EQ(come, sent);
}

TEST_P(After, messages_with_the_same_tag_keep_their_order) {
  in_world([](Context& here) {
    const auto gates = copy_of(here, "gates"), ring = copy_of(here, "ring");
    keep_order(here, *gates, *ring, true, false);
    keep_order(here, *gates, *ring, false, true);
    keep_order(here, *gates, *ring, true, true);
    meet(here);  // who left before the others have received would end their group
  });
}

TEST_P(After, works_that_are_done_cost_no_wait_and_many_are_all_waited_for) {
  in_world([](Context& here) {
    const auto ring = copy_of(here, "ring");
    constexpr std::size_t kMany = 300;
    Values come(kMany, -1);
    const Values sent(kMany, here.rank);
    CallOptions options;
    options.after(Work()).after(here.group->barrier_async());
    ASSERT_TRUE(here.group->barrier().ok());
    std::vector<Work> works;
    for (std::size_t i = 0; i < kMany; ++i) {
      const auto tag = static_cast<std::uint32_t>(i);
      options.after(ring->irecv(Buffer::of(&come[i], 1), previous(here), tag));
      works.push_back(ring->isend(ConstBuffer::of(&sent[i], 1), next(here), tag));
    }
    ASSERT_TRUE(here.group->all_reduce(Buffer::of(come), ReduceOp::sum, options).ok());
    EXPECT_EQ(come, Values(kMany, here.size * (here.size - 1) / 2));
    for (Work& work : works) EXPECT_TRUE(work.wait().ok());
    EXPECT_TRUE(here.group->barrier(CallOptions{}.after(works.front())).ok());
  });
}

TEST_P(After, one_that_failed_ends_the_group_that_waits_for_it_on_every_rank) {
  in_world([](Context& here) {
    const auto doomed = copy_of(here, "doomed"), sums = copy_of(here, "sums");
    Values values(kCount, 1);
    std::int32_t never = 0;
    // On one rank alone: the others join a call that it cannot join.
    CallOptions options;
    if (here.rank == 0) options.after(doomed->irecv(Buffer::of(&never, 1), next(here)));
    Work sum = sums->all_reduce_async(Buffer::of(values), ReduceOp::sum, options);
    EXPECT_FALSE(sum.done());
    meet(here);
    if (here.rank == here.size - 1) doomed->abort("as a test");
    const Status status = sum.wait();
    EXPECT_EQ(status.code(), Code::aborted) << status.to_string();
    EXPECT_THAT(status.message(), AllOf(HasSubstr("comes after"), HasSubstr("as a test")));
    EXPECT_EQ(sums->health().code(), Code::aborted);
    // Known from the start, the same.
    const auto others = copy_of(here, "others");
    const Status again = others->barrier(
        here.rank == 0 ? CallOptions{}.after(Work::finished({Code::io, "gone"})) : CallOptions{});
    EXPECT_EQ(again.code(), Code::io) << again.to_string();
    EXPECT_TRUE(here.group->barrier().ok());
  });
}

TEST_P(After, a_message_whose_work_failed_ends_its_group) {
  in_world([](Context& here) {
    const auto ring = copy_of(here, "ring");
    std::int32_t value = here.rank, come = -1;
    CallOptions options;
    if (here.rank == 0) options.after(Work::finished({Code::io, "gone"}));
    Work recv = ring->irecv(Buffer::of(&come, 1), previous(here));
    Work send = ring->isend(ConstBuffer::of(&value, 1), next(here), 0, options);
    const Status status = here.rank == 0 ? send.wait() : ring->barrier();
    EXPECT_EQ(status.code(), Code::io) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("comes after"));
    (void)recv.wait();
    EXPECT_TRUE(here.group->barrier().ok());
  });
}

// Rank 0 has a after b, the others b after a: nobody can go on.
TEST_P(After, ranks_that_wait_for_each_other_in_a_circle_are_ended_by_the_deadline) {
  in_world([](Context& here) {
    const auto a = copy_of(here, "a"), b = copy_of(here, "b");
    CallOptions hurried;
    hurried.timeout = std::chrono::milliseconds(300);
    Group& first = here.rank == 0 ? *b : *a;
    Group& second = here.rank == 0 ? *a : *b;
    Work free = first.barrier_async(hurried);
    Work held = second.barrier_async(CallOptions(hurried).after(free));
    for (const Status& status : {free.wait(), held.wait()}) {
      EXPECT_EQ(status.code(), Code::timed_out) << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("waits for barrier #1 of group '"));
    }
    EXPECT_TRUE(here.group->barrier().ok());
  });
}

TEST_P(After, one_that_waits_for_nothing_that_ever_comes_says_for_what) {
  in_world([](Context& here) {
    const auto ring = copy_of(here, "ring"), sums = copy_of(here, "sums");
    std::int32_t never = 0;
    Work recv = ring->irecv(Buffer::of(&never, 1), previous(here), 5);
    CallOptions hurried;
    hurried.timeout = std::chrono::milliseconds(200);
    const Status status = sums->barrier(CallOptions(hurried).after(recv));
    EXPECT_EQ(status.code(), Code::timed_out) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("waits for a message of group 'ring'"));
    // A message that waits ends alone, as one that is not met.
    const Work sent =
        ring->isend(ConstBuffer::of(&never, 1), next(here), 6, CallOptions(hurried).after(recv));
    const Status late = Work(sent).wait();
    EXPECT_EQ(late.code(), Code::timed_out) << late.to_string();
    EXPECT_THAT(late.message(), HasSubstr("waited for a message of group 'ring'"));
    EXPECT_TRUE(ring->health().ok());
    EXPECT_TRUE(here.group->barrier().ok());
  });
}

TEST_P(After, a_work_of_a_group_that_is_gone_has_failed) {
  in_world([](Context& here) {
    auto brief = copy_of(here, "brief");
    const auto sums = copy_of(here, "sums");
    std::int32_t never = 0;
    const Work recv = brief->irecv(Buffer::of(&never, 1), here.rank);
    const Work held = sums->barrier_async(CallOptions{}.after(recv));
    meet(here);
    brief.reset();
    const Status status = Work(held).wait();
    EXPECT_EQ(status.code(), Code::aborted) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("destroyed"));
    EXPECT_TRUE(here.group->barrier().ok());
  });
}

TEST_P(After, threads_may_end_and_wait_for_works_at_once) {
  in_world([](Context& here) {
    const auto a = copy_of(here, "a"), b = copy_of(here, "b"), c = copy_of(here, "c");
    Values x(200, here.rank), y(200, here.rank);
    for (int turn = 0; turn < 30; ++turn) {
      Work one = a->all_reduce_async(Buffer::of(x), ReduceOp::max);
      Work two = b->all_reduce_async(Buffer::of(y), ReduceOp::max);
      Work three = c->barrier_async(CallOptions{}.after(one).after(two));
      std::thread waits([&] { EXPECT_TRUE(two.wait().ok()); });
      std::thread waits_too([&] { EXPECT_TRUE(three.wait().ok()); });
      EXPECT_TRUE(one.wait().ok());
      waits.join();
      waits_too.join();
    }
    EXPECT_EQ(x, y);
  });
}

INSTANTIATE_TEST_SUITE_P(World, After, testing::ValuesIn(one_world_of_each()), name_of);

}  // namespace
}  // namespace tutti::test
