// Kernels, launched through the driver: which kernel is taken, and ranks that meet as streams do.
#include "support/device_runner.hpp"
#include "support/update_checks.hpp"
#include "unit/cuda/on_device.hpp"

namespace tutti::cuda {
namespace {

TEST_F(EmulatedGpu, launches_the_kernel_of_every_dtype_and_op) {
  on_emulated_gpu({}, [] {
    DeviceRunner runner(open_device(), 1 << 18);
    std::mt19937 random(51);
    for (const reduce::Case& pair : reduce::shaped_cases())
      for (const int operands : {1, 2, 5}) {
        if (pair.op == ReduceOp::user) continue;
        ASSERT_TRUE(check_fold(runner, {pair, operands, 100, PlaceLayout::alike, 2}, random));
      }
    for (int copies = 1; copies <= kMostRanks; ++copies)
      ASSERT_TRUE(check_copies(runner, copies, 2000, random));
  });
}

TEST_F(EmulatedGpu, launches_the_kernels_of_an_update) {
  on_emulated_gpu({}, [] {
    DeviceRunner runner(open_device(), 1 << 18);
    std::mt19937 random(52);
    for (const std::size_t count : {0, 1, 64, 1000})
      ASSERT_TRUE(check_updates(runner, count, random)) << count;
  });
}

TEST_F(EmulatedGpu, runs_ranks_that_meet_in_their_kernels) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    for (const int ranks : {2, 3, 4, 5, 6, 7, 8}) {
      DeviceWorld world(device, ranks);
      check_fold_among_peers(world, {ranks, 1, 500});
      check_fold_then_copy(world, {ranks, 1, 500});
      check_fold_by_replays(world, {ranks, 1, 500});
      check_fold_after_meet(world, {ranks, 1, 500});
      check_copies_by_posts(world, {ranks, 1, 500});
      check_difference(world, {ranks, 1, 100}, ranks / 2);
      check_difference_in_posts(world, {ranks, 1, 100});
    }
  });
}

TEST_F(EmulatedGpu, ends_kernels_that_wait_when_they_are_told_to_give_up) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    for (const GiveUp how : {GiveUp::by_abort_word, GiveUp::by_poison}) {
      DeviceWorld world(device, 4);
      check_giving_up(world, {4, 1, 100}, how);
      check_giving_up_at_the_end(world, {4, 1, 100}, how);
    }
  });
}

}  // namespace
}  // namespace tutti::cuda
