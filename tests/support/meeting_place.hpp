// support/meeting_place.hpp - the memory in which ranks meet, and the phases that they do there.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/reduction.hpp"
#include "support/meeting_checks.hpp"

namespace tutti::cuda {

inline constexpr std::uint64_t kTag = 0x5ca1ab1e;  // of a good call

// One rank's own memory, and the words by which it tells the host something.
struct RankMemory {
  std::uint64_t source, target, epoch, finished, handout;
  std::uint64_t* fault;
  std::uint64_t* done;
  Post* posts;  // to this rank, in host memory
};

// All that ranks need to meet, and what they are to do there: sum their sources.
class MeetingPlace {
 public:
  MeetingPlace(LaunchWorld& world, MeetingSize size)
      : world_(world), size_(size), ranks_(static_cast<std::size_t>(size.ranks)) {
    const std::size_t flags = ranks_ * kFlagStride * sizeof(std::uint64_t);
    entered_ = world.allocate(flags);
    left_ = world.allocate(flags);
    posts_ = world.allocate(ranks_ * ranks_ * sizeof(Post));
    abort_ = static_cast<std::uint32_t*>(world.allocate_host(64));
    for (std::size_t r = 0; r < ranks_; ++r) {
      auto* words = static_cast<std::uint64_t*>(world.allocate_host(64));
      memory_.push_back({world.allocate(bytes()), world.allocate(bytes()), world.allocate(64),
                         world.allocate(64), world.allocate(sizeof(Handout)), words, words + 1,
                         static_cast<Post*>(world.allocate_host(ranks_ * sizeof(Post)))});
    }
    fill(1);
  }

  std::size_t bytes() const { return size_.count * sizeof(float); }
  const RankMemory& of(int rank) const { return memory_[static_cast<std::size_t>(rank)]; }
  std::uint32_t* abort_word() { return abort_; }
  std::uint64_t entered_flag(int rank) const { return flag(entered_, rank); }
  std::uint64_t left_flag(int rank) const { return flag(left_, rank); }

  // Sources with numbers of this round, targets with none.
  void fill(int round) {
    round_ = round;
    std::vector<float> numbers(size_.count);
    for (int r = 0; r < size_.ranks; ++r) {
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = number(r, i);
      world_.write(of(r).source, numbers.data(), bytes());
      std::fill(numbers.begin(), numbers.end(), -1.0F);
      world_.write(of(r).target, numbers.data(), bytes());
      *of(r).fault = 0;
    }
  }
  float number(int rank, std::size_t i) const {
    return static_cast<float>(100 * round_ + 7 * rank) + static_cast<float>(i % 50);
  }
  float sum(std::size_t i) const {
    float sum = 0;
    for (int r = 0; r < size_.ranks; ++r) sum += number(r, i);
    return sum;
  }

  std::vector<float> target(int rank) const { return floats(of(rank).target, size_.count); }
  std::vector<float> floats(std::uint64_t from, std::size_t count) const {
    std::vector<float> numbers(count);
    world_.read(numbers.data(), from, count * sizeof(float));
    return numbers;
  }
  std::uint64_t word(std::uint64_t address) const {
    std::uint64_t value = 0;
    world_.read(&value, address, sizeof value);
    return value;
  }
  std::uint64_t fault(int rank) const { return __atomic_load_n(of(rank).fault, __ATOMIC_ACQUIRE); }

  Phase phase(int rank, Enter enter, Leave leave) {
    Phase phase{};
    phase.ranks = size_.ranks;
    phase.rank = rank;
    phase.enter = enter;
    phase.leave = leave;
    phase.ticket = ++ticket_;
    phase.done = of(rank).done;
    phase.fault = of(rank).fault;
    phase.meeting = {at<std::uint64_t>(entered_),
                     at<std::uint64_t>(left_),
                     at<Post>(posts_),
                     at<std::uint64_t>(of(rank).epoch),
                     at<std::uint32_t>(of(rank).finished),
                     abort_};
    phase.posts = of(rank).posts;
    phase.handout = at<Handout>(of(rank).handout);
    std::fill_n(phase.tags, size_.ranks, kTag);
    std::fill_n(phase.mine, size_.ranks, post(rank));
    return phase;
  }
  Post post(int rank) const { return {of(rank).source, of(rank).target, kTag, 0}; }

  // The part that `rank` folds, for everybody.
  void add_fold(Phase& phase, int rank) const {
    const std::size_t part = (size_.count + ranks_ - 1) / ranks_;
    const std::size_t begin = std::min(size_.count, static_cast<std::size_t>(rank) * part);
    Fold& fold = phase.fold;
    fold.bytes = (std::min(size_.count, begin + part) - begin) * sizeof(float);
    fold.operand_count = fold.target_count = size_.ranks;
    for (int r = 0; r < size_.ranks; ++r)
      fold.operands[r] = fold.targets[r] = {begin * sizeof(float), r, 1};
    set_reduction(fold, {Dtype::f32, ReduceOp::sum, true, size_.ranks});
  }

  // The round went well, with the sums in every target.
  void expect_sums(const std::vector<Phase>& phases) const {
    for (int r = 0; r < size_.ranks; ++r) {
      const std::vector<float> got = target(r);
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], sum(i)) << "rank " << r << ", element " << i << ", round " << round_;
      EXPECT_EQ(fault(r), 0U);
      EXPECT_EQ(*of(r).done, phases[static_cast<std::size_t>(r)].ticket);
      EXPECT_EQ(word(of(r).finished) & 0xffffffffU, 0U);
    }
  }
  void expect_untouched(int rank) const {
    const std::vector<float> got = target(rank);
    EXPECT_TRUE(std::all_of(got.begin(), got.end(), [](float x) { return x == -1.0F; }))
        << "rank " << rank << " was written to";
  }

 private:
  template <class T>
  static T* at(std::uint64_t address) {
    return reinterpret_cast<T*>(address);
  }
  static std::uint64_t flag(std::uint64_t flags, int rank) {
    return flags + static_cast<std::size_t>(rank) * kFlagStride * sizeof(std::uint64_t);
  }

  LaunchWorld& world_;
  MeetingSize size_;
  std::size_t ranks_;
  std::uint64_t entered_, left_, posts_;
  std::uint32_t* abort_;
  std::vector<RankMemory> memory_;
  std::uint64_t ticket_ = 0;
  int round_ = 0;
};

}  // namespace tutti::cuda
