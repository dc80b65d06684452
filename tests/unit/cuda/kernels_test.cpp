// The kernels' code, run on the host, against the plain reference: every op on every dtype.
#include "support/fake_cuda/kernels.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <numeric>

#include "cuda/reduction.hpp"
#include "support/kernel_checks.hpp"
#include "support/update_checks.hpp"

namespace tutti::cuda {
namespace {

template <class Factors>
void run_on_host(const UpdateJob<Factors>& job, kernels::SharedLimbs&,
                 const kernels::Worker& worker) {
  kernels::run_update(job, worker);
}
void run_on_host(const NarrowCall& job, kernels::SharedLimbs&, const kernels::Worker& worker) {
  kernels::run_narrow(job, worker);
}
void run_on_host(const WidenCall& job, kernels::SharedLimbs&, const kernels::Worker& worker) {
  kernels::run_widen(job, worker);
}
void run_on_host(const AddJob& job, kernels::SharedLimbs&, const kernels::Worker& worker) {
  kernels::run_add(job, worker);
}
void run_on_host(const FindCall& job, kernels::SharedLimbs&, const kernels::Worker& worker) {
  kernels::run_find_not_finite(job, worker);
}
void run_on_host(const SquaresCall& job, kernels::SharedLimbs& limbs,
                 const kernels::Worker& worker) {
  kernels::run_sum_squares(job, limbs, worker);
}

// Kernels as functions of this process.
class HostRunner : public KernelRunner {
 public:
  explicit HostRunner(GridSize size = {}) : size_(size) {
    storage_.resize(kCapacity + 256);
    base_ = (reinterpret_cast<std::uint64_t>(storage_.data()) + 255) / 256 * 256;
  }
  std::uint64_t base() const override { return base_; }
  std::size_t capacity() const override { return kCapacity; }
  void write(const reduce::Bytes& bytes) override {
    std::memcpy(reinterpret_cast<void*>(base_), bytes.data(), bytes.size());
  }
  reduce::Bytes read(std::size_t bytes) override {
    const auto* data = reinterpret_cast<const unsigned char*>(base_);
    return {data, data + bytes};
  }
  void run(const UpdateCall& call) override {
    std::vector<kernels::SharedLimbs> shared(static_cast<std::size_t>(size_.blocks));
    run_grid(
        [&](const kernels::Worker& worker) {
          kernels::SharedLimbs& limbs = shared[static_cast<std::size_t>(worker.block)];
          std::visit([&](const auto& job) { run_on_host(job, limbs, worker); }, call);
        },
        size_);
  }
  void run(const Phase& phase, Dtype dtype) override {
    const Dtype row = kernel_dtype(dtype, static_cast<ReduceOp>(phase.fold.op));
    if (size_.blocks * size_.threads == 1)
      run_kernel(kernel_for(phase, row), phase);
    else
      run_grid(kernel_for(phase, row), phase, size_);
  }

 private:
  static constexpr std::size_t kCapacity = 1 << 20;
  GridSize size_;
  reduce::Bytes storage_;
  std::uint64_t base_ = 0;
};

std::vector<reduce::Case> cases_with_kernels() {
  std::vector<reduce::Case> cases = reduce::shaped_cases();
  std::erase_if(cases, [](const reduce::Case& pair) { return pair.op == ReduceOp::user; });
  return cases;
}

class KernelOfEveryPair : public testing::TestWithParam<reduce::Case> {};

// A lone thread's tile is 64 bytes: a few hundred elements are many tiles.
TEST_P(KernelOfEveryPair, gives_the_reference_bits_at_every_length_and_alignment) {
  HostRunner runner;
  std::mt19937 random(41);
  for (const FoldCheck& check : fold_checks(GetParam(), {0, 1, 2, 7, 16, 31, 64, 97, 257, 1009}))
    ASSERT_TRUE(check_fold(runner, check, random));
}

TEST_P(KernelOfEveryPair, shares_the_work_between_threads_and_blocks) {
  HostRunner runner({3, 4, 2});
  std::mt19937 random(42);
  for (const std::size_t count : {1, 37, 500})
    for (const PlaceLayout layout : {PlaceLayout::alike, PlaceLayout::misaligned})
      ASSERT_TRUE(
          check_fold(runner, {GetParam(), 3, count, layout, 2, !GetParam().widens}, random));
}

INSTANTIATE_TEST_SUITE_P(Kernel, KernelOfEveryPair, testing::ValuesIn(cases_with_kernels()),
                         [](const auto& test) { return reduce::name_of(test.param); });

TEST(Kernel, updates_give_the_reference_bits_at_every_length_and_offset) {
  HostRunner alone;
  HostRunner shared({2, 3, 2});
  std::mt19937 random(45);
  for (std::size_t count = 0; count <= 200; ++count)
    ASSERT_TRUE(check_updates(alone, count, random)) << count;
  for (const std::size_t count : {0, 1, 5, 63, 64, 130, 777, 3000})
    ASSERT_TRUE(check_updates(shared, count, random)) << count;
}

TEST(Kernel, copies_any_bytes_to_any_addresses) {
  HostRunner alone;
  HostRunner shared({3, 4, 2});
  std::mt19937 random(43);
  for (int round = 0; round < 200; ++round)
    ASSERT_TRUE(check_copies(alone, 1 + round % kMostRanks, 1500, random)) << round;
  for (int round = 0; round < 50; ++round)
    ASSERT_TRUE(check_copies(shared, 1 + round % kMostRanks, 1500, random)) << round;
}

TEST(Kernel, copies_and_folds_in_one_launch) {
  HostRunner runner({2, 3, 2});
  std::mt19937 random(44);
  for (const Dtype dtype : {Dtype::bf16, Dtype::f64, Dtype::i8})
    for (const int copies : {1, 5, 16})
      for (const int operands : {1, 4})
        ASSERT_TRUE(check_both(runner,
                               {{dtype, ReduceOp::sum}, operands, 333, PlaceLayout::alike, 3},
                               copies, random));
}

TEST(Kernel, a_copy_to_several_places_leaves_out_those_that_are_none) {
  constexpr std::size_t kMost = 5000, kTargets = 5, kRoom = kMost + 64;
  std::vector<unsigned char> from(kRoom);
  std::iota(from.begin(), from.end(), static_cast<unsigned char>(1));
  for (const std::size_t bytes : {1, 15, 16, 100, 4096, 5000})
    for (const std::size_t unlike : {0, 3})  // targets, by how they lie
      for (const bool many : {false, true}) {
        std::vector<unsigned char> to(kTargets * kRoom, 0xee);
        Phase phase{};
        const auto at = [](const unsigned char* data) {
          return reinterpret_cast<std::uint64_t>(data);
        };
        phase.fold.operands[0] = {at(from.data()), -1, 0};
        for (std::size_t t = 0; t < kTargets; ++t) {
          unsigned char* const place = to.data() + t * kRoom;
          const std::uint64_t alike = (at(from.data()) - at(place)) % 16;
          phase.fold.targets[t] = {t % 2 == 1 ? 0 : at(place) + alike + unlike, -1, 0};
        }
        phase.fold.operand_count = 1;
        phase.fold.target_count = kTargets;
        phase.fold.bytes = bytes;
        phase.fold.copies = 1;
        if (many)
          run_grid(kernel_for(phase, Dtype::u8), phase, {3, 4, 2});
        else
          run_kernel(kernel_for(phase, Dtype::u8), phase);
        std::size_t written = 0;
        for (std::size_t t = 0; t < kTargets; t += 2)
          EXPECT_EQ(std::memcmp(reinterpret_cast<const void*>(phase.fold.targets[t].at),
                                from.data(), bytes),
                    0);
        for (const unsigned char byte : to) written += byte != 0xee;
        std::size_t expected = 0;
        for (std::size_t i = 0; i < bytes; ++i) expected += from[i] != 0xee;
        EXPECT_EQ(written, (kTargets + 1) / 2 * expected);
      }
}

TEST(Kernel, a_single_operand_is_copied_bit_by_bit_signalling_nans_included) {
  alignas(16) const std::uint32_t from[5] = {0xffa00001, 0x7f800001, 0, 0x80000000, 1};
  alignas(16) std::uint32_t to[5] = {};
  Phase phase{};
  phase.fold.operands[0] = {reinterpret_cast<std::uint64_t>(from), -1, 1};
  phase.fold.targets[0] = {reinterpret_cast<std::uint64_t>(to), -1, 0};
  phase.fold.operand_count = phase.fold.target_count = 1;
  phase.fold.bytes = sizeof from;
  set_reduction(phase.fold, {Dtype::f32, ReduceOp::max, true, 4});
  EXPECT_EQ(phase.fold.copies, 1);
  run_kernel(kernel_for(phase, Dtype::f32), phase);
  EXPECT_EQ(std::memcmp(from, to, sizeof from), 0);
}

TEST(Kernel, signed_integers_share_a_kernel_with_unsigned_ones_where_sign_does_not_matter) {
  EXPECT_EQ(kernel_dtype(Dtype::i16, ReduceOp::sum), Dtype::u16);
  EXPECT_EQ(kernel_dtype(Dtype::i64, ReduceOp::bxor), Dtype::u64);
  EXPECT_EQ(kernel_dtype(Dtype::i16, ReduceOp::avg), Dtype::i16);
  EXPECT_EQ(kernel_dtype(Dtype::i8, ReduceOp::min), Dtype::i8);
  EXPECT_EQ(kernel_dtype(Dtype::f16, ReduceOp::sum), Dtype::f16);
}

TEST(Kernel, reductions_are_told_to_kernels_by_the_rules_of_the_host) {
  Fold fold{};
  fold.operand_count = 2;
  set_reduction(fold, {Dtype::f32, Reduction::premul_sum(0.5), false, 3});
  EXPECT_EQ(fold.op, static_cast<int>(ReduceOp::sum)) << "no operand is raw";
  fold.operands[1].raw = 1;
  set_reduction(fold, {Dtype::f32, Reduction::premul_sum(0.5), false, 3});
  EXPECT_EQ(fold.op, static_cast<int>(ReduceOp::premul_sum));
  EXPECT_EQ(fold.scalar, 0.5);
  set_reduction(fold, {Dtype::i32, ReduceOp::avg, false, 3});
  EXPECT_EQ(fold.op, static_cast<int>(ReduceOp::sum)) << "only the fold that finishes divides";
  set_reduction(fold, {Dtype::i32, ReduceOp::avg, true, 3});
  EXPECT_EQ(fold.op, static_cast<int>(ReduceOp::avg));
  EXPECT_EQ(fold.ranks, 3);
  EXPECT_FALSE(has_kernel({Dtype::f32, Reduction::by(reduce::user()), true, 2}));
}

}  // namespace
}  // namespace tutti::cuda
