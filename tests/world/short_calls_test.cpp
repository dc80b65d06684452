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

INSTANTIATE_TEST_SUITE_P(Host, ShortCalls,
                         testing::Values(World{.kind = WorldKind::threads, .size = 2},
                                         World{.kind = WorldKind::shm, .size = 2}),
                         name_of);

}  // namespace
}  // namespace tutti::test
#endif
