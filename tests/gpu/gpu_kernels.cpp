// The kernels on a real GPU: the checks of tests/unit/cuda, with more elements, threads and blocks.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "support/device_runner.hpp"
#include "support/update_checks.hpp"

namespace tutti::cuda {
namespace {

std::shared_ptr<Device> device;  // the first there is: main opens it

constexpr std::size_t kCapacity = 16 << 20;

class KernelOnGpu : public testing::TestWithParam<reduce::Case> {};

std::vector<reduce::Case> cases_with_kernels() {
  std::vector<reduce::Case> cases = reduce::shaped_cases();
  std::erase_if(cases, [](const reduce::Case& pair) { return pair.op == ReduceOp::user; });
  return cases;
}

TEST_P(KernelOnGpu, gives_the_reference_bits_at_every_length_and_alignment) {
  DeviceRunner runner(device, kCapacity);
  std::mt19937 random(61);
  int turn = 0;
  for (const FoldCheck& check : fold_checks(GetParam(), {0, 1, 7, 16, 31, 257, 1009})) {
    const int blocks[] = {1, 3, 264};
    runner.use_blocks(blocks[turn++ % 3]);
    ASSERT_TRUE(check_fold(runner, check, random));
  }
}

// Several tiles for each block, single vectors behind them, and elements behind those.
TEST_P(KernelOnGpu, gives_the_reference_bits_over_many_tiles) {
  DeviceRunner runner(device, kCapacity);
  std::mt19937 random(62);
  runner.use_blocks(3);
  const std::size_t count = 400'003 / size_of(GetParam().dtype);
  for (const PlaceLayout layout : {PlaceLayout::aligned, PlaceLayout::alike})
    ASSERT_TRUE(check_fold(runner, {GetParam(), 3, count, layout, 2, !GetParam().widens}, random));
  ASSERT_TRUE(check_fold(runner, {GetParam(), 2, 20'000, PlaceLayout::unlike}, random));
}

INSTANTIATE_TEST_SUITE_P(Gpu, KernelOnGpu, testing::ValuesIn(cases_with_kernels()),
                         [](const auto& test) { return reduce::name_of(test.param); });

TEST(Gpu, updates_give_the_reference_bits_at_every_length_and_offset) {
  DeviceRunner runner(device, kCapacity);
  std::mt19937 random(65);
  for (std::size_t count = 0; count <= 200; ++count)
    ASSERT_TRUE(check_updates(runner, count, random)) << count;
  for (const std::size_t count : {2047, 2048, 33'333, 500'000})
    ASSERT_TRUE(check_updates(runner, count, random)) << count;
}

TEST(Gpu, copies_any_bytes_to_any_addresses) {
  DeviceRunner runner(device, kCapacity);
  std::mt19937 random(63);
  for (int round = 0; round < 100; ++round) {
    runner.use_blocks(1 + round % 40);
    ASSERT_TRUE(check_copies(runner, 1 + round % kMostRanks, 200'000, random)) << round;
  }
}

TEST(Gpu, copies_and_folds_in_one_launch) {
  DeviceRunner runner(device, kCapacity);
  std::mt19937 random(64);
  runner.use_blocks(20);
  for (const Dtype dtype : {Dtype::bf16, Dtype::f64, Dtype::i8})
    for (const int operands : {1, 4})
      ASSERT_TRUE(check_both(
          runner, {{dtype, ReduceOp::sum}, operands, 33'333, PlaceLayout::alike, 3}, 5, random));
}

class RanksOnGpu : public testing::TestWithParam<int> {};

// As many blocks as fit on any GPU at once, from all ranks together.
TEST_P(RanksOnGpu, meet_in_their_kernels) {
  DeviceWorld world(device, GetParam());
  for (const int blocks : {1, 3}) {
    check_fold_among_peers(world, {GetParam(), blocks, 50'000});
    check_fold_then_copy(world, {GetParam(), blocks, 50'000});
    check_fold_by_replays(world, {GetParam(), blocks, 50'000});
    check_difference(world, {GetParam(), blocks, 1000}, GetParam() - 1);
  }
}

TEST_P(RanksOnGpu, work_with_any_number_of_blocks_after_they_have_met) {
  DeviceWorld world(device, GetParam());
  for (const int blocks : {1, 40, 2000}) {
    check_fold_after_meet(world, {GetParam(), blocks, 50'000});
    check_copies_by_posts(world, {GetParam(), blocks, 50'000});
    check_difference_in_posts(world, {GetParam(), blocks, 1000});
  }
}

TEST_P(RanksOnGpu, give_up_when_they_are_told_to) {
  for (const GiveUp how : {GiveUp::by_abort_word, GiveUp::by_poison}) {
    DeviceWorld world(device, GetParam());
    check_giving_up(world, {GetParam(), 3, 1000}, how);
    check_giving_up_at_the_end(world, {GetParam(), 3, 1000}, how);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, RanksOnGpu, testing::Values(2, 3, 8));

}  // namespace
}  // namespace tutti::cuda

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // By default eight: streams that share one wait for each other, also where that is a deadlock.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const auto opened = tutti::cuda::Device::open(0);
  if (!opened.ok() && opened.status().code() == tutti::Code::unsupported) {
    std::printf("skipped: %s\n", opened.status().message().c_str());
    return 77;
  }
  if (!opened.ok()) return std::puts(opened.status().to_string().c_str()), 1;
  tutti::cuda::device = *opened;
  std::printf("on %s\n", tutti::cuda::device->facts().name.c_str());
  const int result = RUN_ALL_TESTS();
  tutti::cuda::device.reset();
  return result;
}
