// What owners and takers do in an all_gather or a broadcast on device memory, by either plan: played on the host
// with the posts that ranks tell each other.
#include "engine/device_plan.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <numeric>
#include <set>

#include "schedule/host/forms.hpp"
#include "schedule/host/push.hpp"

namespace tutti::engine {
namespace {

using Bytes = std::vector<std::byte>;

struct Call {
  Collective collective = Collective::all_gather;
  std::vector<std::size_t> sizes;  // of what each rank shows
  int root = 0;
  bool in_place = false;
  std::set<int> hidden = {};  // ranks whose output peers cannot map

  int ranks() const { return static_cast<int>(sizes.size()); }
  bool is_broadcast() const { return collective == Collective::broadcast; }
};

// All ranks of a call, each with its memory, its plan and what it is to do.
class PlanWorld {
 public:
  PlanWorld(const Call& call, bool pushes) : call_(call), pushes_(pushes) {
    for (int rank = 0; rank < call.ranks(); ++rank) add(rank);
    for (Rank& rank : ranks_) bind(rank);
  }

  void run() {
    for (Rank& rank : ranks_) stage(rank);
    for (Rank& rank : ranks_) {
      expect_agreement(rank);
      for (int c = 0; c < phase(rank).copy_count; ++c) copy(rank, phase(rank).copies[c]);
      if (phase(rank).fold.bytes != 0) spread(rank);
    }
    for (Rank& rank : ranks_)
      for (const StagedChunk& chunk : rank.work.out)
        ADD_FAILURE() << "stages what comes in " << chunk.at;
  }
  void expect_results() const {
    const std::size_t all = std::accumulate(call_.sizes.begin(), call_.sizes.end(), std::size_t{0});
    for (const Rank& rank : ranks_) {
      std::size_t at = 0;
      for (int from = 0; from < call_.ranks(); ++from) {
        const std::size_t bytes = call_.sizes[static_cast<std::size_t>(from)];
        ASSERT_EQ(Bytes(rank.output.data() + at, rank.output.data() + at + bytes),
                  pattern(from, bytes));
        at += bytes;
      }
      ASSERT_EQ(at, all);
      ASSERT_EQ(rank.output.back(), std::byte{0xee}) << "written beyond the end";
    }
  }
  std::size_t bytes_read() const { return bytes_read_; }
  std::size_t bytes_written() const { return bytes_written_; }
  std::uint64_t tag(int from, int to) const {
    return phase(ranks_[static_cast<std::size_t>(from)]).mine[to].tag;
  }
  std::size_t shown_bytes(int rank) {
    Rank& one = ranks_[static_cast<std::size_t>(rank)];
    return one.plan->shown_bytes(one.launch);
  }

 private:
  struct Rank {
    int rank = 0;
    Bytes input, output;
    Bytes staging;
    Launch launch;
    std::unique_ptr<DevicePlan> plan;
    DeviceWork work;
  };
  static const cuda::Phase& phase(const Rank& rank) { return rank.work.phase; }

  static Bytes pattern(int rank, std::size_t bytes) {
    Bytes made(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      made[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(rank) * 31 + 1);
    return made;
  }

  void add(int index) {
    Rank& rank = ranks_.emplace_back();
    rank.rank = index;
    const auto at = static_cast<std::size_t>(index);
    const std::size_t before =
        std::accumulate(call_.sizes.begin(), call_.sizes.begin() + index, std::size_t{0});
    const std::size_t all = std::accumulate(call_.sizes.begin(), call_.sizes.end(), std::size_t{0});
    rank.input = pattern(index, call_.sizes[at]);
    rank.output.assign(all + 1, std::byte{0xee});
    Launch& launch = rank.launch;
    launch.collective = call_.collective;
    launch.algorithm = Algorithm::direct;
    launch.root = call_.root;
    launch.in_place = call_.in_place;
    launch.call_hash = 77;
    if (call_.in_place || (call_.is_broadcast() && index == call_.root))
      std::copy(rank.input.begin(), rank.input.end(),
                rank.output.begin() + static_cast<std::ptrdiff_t>(before));
    if (call_.is_broadcast()) {
      launch.output = {{rank.output.data(), all}};
      return;
    }
    launch.input = {
        {call_.in_place ? rank.output.data() + before : rank.input.data(), call_.sizes[at]}};
    std::size_t begin = 0;
    for (const std::size_t bytes : call_.sizes) {
      launch.output.push_back({rank.output.data() + begin, bytes});
      launch.block_bytes.push_back(bytes);
      begin += bytes;
    }
  }

  void bind(Rank& rank) {
    const schedule::Request request{.collective = call_.collective,
                                    .size = call_.ranks(),
                                    .rank = rank.rank,
                                    .root = call_.root,
                                    .in_place = call_.in_place};
    auto all = schedule::host_forms_of_all(Algorithm::direct, request);
    ASSERT_TRUE(all.ok() && *all);
    std::vector<schedule::HostForm> forms;
    for (schedule::HostForms& each : **all) forms.push_back(std::move(each.mapped));
    if (pushes_) {
      auto pushing = schedule::pushed(forms);
      ASSERT_TRUE(pushing);
      forms = *std::move(pushing);
    }
    rank.plan = std::make_unique<DevicePlan>(std::move(forms), rank.rank);
    EXPECT_TRUE(rank.plan->fits());
    const auto is_output = [&](const std::byte* data) {
      return data >= rank.output.data() && data < rank.output.data() + rank.output.size();
    };
    const bool is_giver = call_.is_broadcast() && rank.rank == call_.root;
    rank.plan->bind(
        rank.launch,
        [&](const std::byte* data) {
          return is_giver || !is_output(data) || !call_.hidden.contains(rank.rank);
        },
        rank.work);
  }

  // What peers may read, and cannot where it lies.
  static void stage(Rank& rank) {
    rank.staging.resize(rank.work.staging_bytes);
    DevicePlan::place_staging(rank.work, reinterpret_cast<std::uintptr_t>(rank.staging.data()));
    for (const StagedChunk& chunk : rank.work.in)
      std::memcpy(rank.staging.data() + chunk.at, chunk.pieces.at(0).data, chunk.pieces.bytes());
  }
  void expect_agreement(const Rank& rank) {
    for (const Rank& peer : ranks_) {
      if (peer.rank == rank.rank) continue;
      EXPECT_EQ(phase(rank).tags[peer.rank], phase(peer).mine[rank.rank].tag)
          << "what rank " << peer.rank << " tells rank " << rank.rank;
    }
  }
  std::uint64_t resolve(const Rank& rank, const cuda::Place& place, bool is_target) {
    if (place.peer < 0) return place.at;
    const cuda::Post& post = phase(ranks_[static_cast<std::size_t>(place.peer)]).mine[rank.rank];
    return place.at + (is_target ? post.target : post.source);
  }
  void move(std::uint64_t to, std::uint64_t from, std::size_t bytes) {
    ASSERT_NE(from, 0U);
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    bytes_written_ += bytes;
  }
  void copy(const Rank& rank, const cuda::Copy& each) {
    move(each.to, resolve(rank, each.from, false), each.bytes);
    bytes_read_ += each.bytes;
  }
  void spread(const Rank& rank) {
    const cuda::Fold& fold = phase(rank).fold;
    ASSERT_EQ(fold.copies, 1);
    ASSERT_EQ(fold.operand_count, 1);
    for (int t = 0; t < fold.target_count; ++t)
      if (const std::uint64_t to = resolve(rank, fold.targets[t], true); to != 0)
        move(to, resolve(rank, fold.operands[0], false), fold.bytes);
    bytes_read_ += fold.bytes;
  }

  Call call_;
  bool pushes_;
  std::deque<Rank> ranks_;
  std::size_t bytes_read_ = 0;
  std::size_t bytes_written_ = 0;
};

std::vector<Call> calls() {
  std::vector<Call> all;
  for (const int n : {3, 4, 8, 16})
    for (const bool in_place : {false, true}) {
      std::vector<std::size_t> even(static_cast<std::size_t>(n), 1003), uneven;
      for (int rank = 0; rank < n; ++rank)
        uneven.push_back(rank % 3 == 1 ? 0 : static_cast<std::size_t>(rank * 97 + 1));
      for (const auto& sizes : {even, uneven})
        for (const std::set<int>& hidden :
             {std::set<int>{}, std::set<int>{0}, std::set<int>{1, n - 1}})
          all.push_back({.sizes = sizes, .in_place = in_place, .hidden = hidden});
      std::vector<std::size_t> one(static_cast<std::size_t>(n), 0);
      one[static_cast<std::size_t>(n / 2)] = 4099;
      for (const std::set<int>& hidden : {std::set<int>{}, std::set<int>{0, n / 2}})
        all.push_back({.collective = Collective::broadcast,
                       .sizes = one,
                       .root = n / 2,
                       .in_place = true,
                       .hidden = hidden});
    }
  all.push_back({.sizes = {1003, 1003}});
  return all;
}

TEST(DevicePlan, owners_that_push_and_takers_that_read_end_with_the_same) {
  for (const Call& call : calls())
    for (const bool pushes : {false, true}) {
      if (!pushes && !call.hidden.empty()) continue;
      PlanWorld world(call, pushes);
      world.run();
      world.expect_results();
      if (testing::Test::HasFailure()) return;
    }
}

TEST(DevicePlan, what_is_pushed_is_read_once) {
  for (const Call& call : calls()) {
    if (!call.hidden.empty()) continue;
    PlanWorld pushing(call, true), reading(call, false);
    pushing.run();
    reading.run();
    const std::size_t all = std::accumulate(call.sizes.begin(), call.sizes.end(), std::size_t{0});
    EXPECT_EQ(pushing.bytes_read(), all);
    EXPECT_EQ(pushing.bytes_written(), reading.bytes_written());
    EXPECT_EQ(reading.bytes_read(), reading.bytes_written());
    for (int rank = 0; rank < call.ranks(); ++rank)
      EXPECT_EQ(pushing.shown_bytes(rank), all) << "all ranks choose alike";
  }
}

// A rank that pushes and one that waits to be read would both do nothing.
TEST(DevicePlan, ranks_that_go_different_ways_find_a_difference) {
  const Call call{.sizes = {64, 64, 64}};
  PlanWorld pushing(call, true), reading(call, false);
  EXPECT_NE(pushing.tag(0, 1), reading.tag(0, 1));
}

}  // namespace
}  // namespace tutti::engine
