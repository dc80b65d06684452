// A blocking call of a few bytes on one host allocates nothing: what it needs was made by the first one
// like it.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <functional>

#include "support/allocations.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

class ShortCalls : public WorldTest {};

// A call that has to wait long becomes a work that another thread may drive, and that is allocated: on
// a busy machine some are.
TEST_P(ShortCalls, allocate_nothing_unless_they_wait_long) {
  in_world([](Context& here) {
    float value = 1;
    std::vector<float> all(static_cast<std::size_t>(here.size));
    const ConstBuffer input{&value, 1, Dtype::f32};
    const Buffer one{&value, 1, Dtype::f32};
    const Buffer each{all.data(), all.size(), Dtype::f32};
    const std::function<Status()> calls[] = {
        [&] { return here.group->all_reduce(one, ReduceOp::min); },
        [&] { return here.group->barrier(); },
        [&] { return here.group->broadcast(one, 0); },
        [&] { return here.group->all_gather(input, each); },
    };
    for (const auto& call : calls) {
      const int before = allocations;
      EXPECT_TRUE(call().ok());
      EXPECT_GT(allocations - before, 0);  // the first of its kind: the counter counts
    }
    constexpr int kRounds = 500;
    int without = 0;
    for (int round = 0; round < kRounds; ++round)
      for (const auto& call : calls) {
        const int before = allocations;
        EXPECT_TRUE(call().ok());
        without += allocations == before;
      }
    EXPECT_GT(without, kRounds * static_cast<int>(std::size(calls)) / 2);
  });
}

// A call that has to wait, and no memory for the work that it would become.
TEST_P(ShortCalls, that_cannot_have_memory_to_wait_end_with_a_status) {
  in_world([](Context& here) {
    float value = 1;
    const Buffer one{&value, 1, Dtype::f32};
    ASSERT_TRUE(here.group->all_reduce(one, ReduceOp::min).ok());
    meet(here);
    if (here.rank == 0) {
      bad_ones = 1'000'000;
      const Status status = here.group->all_reduce(one, ReduceOp::min);
      bad_ones = 0;
      EXPECT_EQ(status.code(), Code::out_of_memory) << status.to_string();
    }
    meet(here, "after that");
    EXPECT_EQ(here.group->all_reduce(one, ReduceOp::min).ok(), false);
  });
}

// Whatever allocation fails while works are driven, all of them end.
TEST(Works, are_not_lost_when_memory_runs_out_for_a_moment) {
  const auto alone = [](Config& config) { config.progress_thread = false; };
  run({.kind = WorldKind::threads, .size = 2, .tune = alone}, [](Context& here) {
    for (int good = 0; good < 80; ++good) {
      auto group = here.group->duplicate();
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      std::vector<float> sum(100), more(100), letter(100);
      Work works[] = {(*group)->all_reduce_async(Buffer::of(sum), ReduceOp::sum),
                      (*group)->all_reduce_async(Buffer::of(more), ReduceOp::sum),
                      here.rank == 0 ? (*group)->isend(ConstBuffer::of(letter), 1)
                                     : (*group)->irecv(Buffer::of(letter), 0)};
      good_ones = good;
      bad_ones = here.rank == 0 ? 3 : 0;
      for (Work& work : works) (void)work.wait(std::chrono::seconds(10));
      bad_ones = 0;
      for (const Work& work : works) ASSERT_TRUE(work.done()) << good << " allocations were good";
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Host, ShortCalls,
                         testing::Values(World{.kind = WorldKind::threads, .size = 2},
                                         World{.kind = WorldKind::shm, .size = 2}),
                         name_of);

}  // namespace
}  // namespace tutti::test
#endif
