// Ranks that meet inside kernels, each a launch of several blocks of several threads of this process.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "cuda/reduction.hpp"
#include "support/fake_cuda/kernels.hpp"
#include "support/meeting_checks.hpp"

namespace tutti::cuda {
namespace {

// Launches wait here until all of a round are started; then each rank's run in a thread of its own.
class ThreadWorld : public LaunchWorld {
 public:
  explicit ThreadWorld(int threads, int at_once = 64) : threads_(threads), at_once_(at_once) {}
  ~ThreadWorld() override { finish(); }

  std::uint64_t allocate(std::size_t bytes) override {
    return reinterpret_cast<std::uint64_t>(allocate_host(bytes));
  }
  void* allocate_host(std::size_t bytes) override {
    return memory_.emplace_back(new Line[bytes / sizeof(Line) + 1]()).get();
  }
  void write(std::uint64_t to, const void* from, std::size_t bytes) override {
    if (bytes == sizeof(std::uint64_t)) {  // somebody may be looking at it
      std::uint64_t word = 0;
      std::memcpy(&word, from, bytes);
      __atomic_store_n(reinterpret_cast<std::uint64_t*>(to), word, __ATOMIC_RELEASE);
    } else {
      std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    }
  }
  void read(void* to, std::uint64_t from, std::size_t bytes) override {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  }
  void start(int rank, const Phase& phase, Dtype dtype, int blocks) override {
    const Dtype row = kernel_dtype(dtype, static_cast<ReduceOp>(phase.fold.op));
    enqueue(rank, kernel_for(phase, row), phase, {blocks, threads_, at_once_});
  }
  void start_meet(int rank, const Phase& phase) override {
    enqueue(rank, kernels::run_meet, phase, {1, threads_, 1});
  }
  void keep(int rank, const Phase& phase, Dtype dtype, int blocks) override {
    kept_[rank] = [=, this] { start(rank, phase, dtype, blocks); };
  }
  void start_kept(int rank) override { kept_[rank](); }
  void finish() override {
    for (auto& [_, rank] : ranks_) rank.join();
    ranks_.clear();
  }

 private:
  struct alignas(256) Line {
    char bytes[256];
  };

  // After the launch before, in its own thread: launching does not wait.
  void enqueue(int rank, KernelBody kernel, const Phase& phase, GridSize size) {
    std::thread before;
    std::swap(before, ranks_[rank]);
    ranks_[rank] = std::thread([=, before = std::move(before)]() mutable {
      if (before.joinable()) before.join();
      run_grid(kernel, phase, size);
    });
  }

  int threads_;
  int at_once_;
  std::deque<std::unique_ptr<Line[]>> memory_;
  std::map<int, std::thread> ranks_;
  std::map<int, std::function<void()>> kept_;
};

class RanksThatMeet : public testing::TestWithParam<int> {};

TEST_P(RanksThatMeet, fold_for_each_other_after_meeting_in_their_kernels) {
  for (const int blocks : {1, 3}) {
    ThreadWorld world(2);
    check_fold_among_peers(world, {GetParam(), blocks, 1000});
    check_fold_then_copy(world, {GetParam(), blocks, 1000});
  }
}

TEST_P(RanksThatMeet, may_be_replayed_since_they_count_by_themselves) {
  ThreadWorld world(2);
  check_fold_by_replays(world, {GetParam(), 2, 500});
}

TEST_P(RanksThatMeet, blocks_that_do_not_fit_at_once_work_after_a_launch_that_meets) {
  ThreadWorld world(2, 1);
  check_fold_after_meet(world, {GetParam(), 3, 1000});
}

TEST_P(RanksThatMeet, blocks_that_do_not_fit_at_once_copy_by_posts_that_one_of_them_has_read) {
  for (const int at_once : {1, 4}) {
    ThreadWorld world(3, at_once);
    check_copies_by_posts(world, {GetParam(), 4, 300});
  }
}

TEST_P(RanksThatMeet, a_rank_that_differs_is_named_by_all_and_nobody_works) {
  for (const int odd_one : {0, GetParam() - 1}) {
    ThreadWorld world(2);
    check_difference(world, {GetParam(), 2, 100}, odd_one);
  }
  ThreadWorld world(2);
  check_difference_in_posts(world, {GetParam(), 3, 100});
}

TEST_P(RanksThatMeet, give_up_when_they_are_told_to_and_say_that_nothing_is_done) {
  for (const GiveUp how : {GiveUp::by_abort_word, GiveUp::by_poison}) {
    ThreadWorld world(2);
    check_giving_up(world, {GetParam(), 2, 100}, how);
  }
  for (const GiveUp how : {GiveUp::by_abort_word, GiveUp::by_poison}) {
    ThreadWorld world(2);
    check_giving_up_at_the_end(world, {GetParam(), 2, 100}, how);
  }
}

INSTANTIATE_TEST_SUITE_P(InKernels, RanksThatMeet, testing::Values(2, 3, 5, 8));

// Two blocks, one after the other: the first finds a poisoned flag, the second a good one.
TEST(OneRankThatMeets, does_not_leave_when_one_of_its_blocks_gave_up) {
  std::uint64_t entered[2 * kFlagStride] = {};
  std::uint64_t left[2 * kFlagStride] = {};
  std::uint64_t epoch = 0, fault = 0, done = 0;
  std::uint32_t finished = 0, abort = 0;
  Post posts[4] = {};
  Phase phase{};
  phase.ranks = 2;
  phase.enter = Enter::meet;
  phase.leave = Leave::meet;
  phase.ticket = 1;
  phase.done = &done;
  phase.fault = &fault;
  phase.meeting = {entered, left, posts, &epoch, &finished, &abort};
  left[kFlagStride] = 1;
  kernels::Shared shared{};
  const KernelBody copy = kernels::run_copy_phase;

  entered[kFlagStride] = kPoison;
  copy(phase, shared, {0, 1, 0, 2, nullptr});
  entered[kFlagStride] = 1;
  copy(phase, shared, {0, 1, 1, 2, nullptr});
  EXPECT_EQ(left[0], 0U);
  EXPECT_EQ(epoch, 0U);
  EXPECT_EQ(done, 0U);
  EXPECT_EQ(finished, 0U) << "ready for the next launch";
  EXPECT_EQ(fault_of(fault), Fault::aborted);
  EXPECT_EQ(peer_of(fault), 1);
  EXPECT_EQ(ticket_of(fault), 1U);

  copy(phase, shared, {0, 1, 0, 2, nullptr});
  copy(phase, shared, {0, 1, 1, 2, nullptr});
  EXPECT_EQ(left[0], 1U);
  EXPECT_EQ(epoch, 1U);
  EXPECT_EQ(done, 1U);
}

}  // namespace
}  // namespace tutti::cuda
