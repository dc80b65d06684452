#include "trace/lanes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "unit/trace/handmade.hpp"

namespace tutti::trace {
namespace {

Slice slice(std::int64_t begin, std::int64_t end) { return {begin, end, "", nullptr}; }

bool nests(const std::vector<Slice>& slices) {
  for (const Slice& a : slices)
    for (const Slice& b : slices)
      if (a.begin < b.begin && b.begin < a.end && a.end < b.end) return false;
  return true;
}

TEST(part_by_nesting, slices_within_and_beside_each_other_share_a_lane) {
  EXPECT_EQ(part_by_nesting({slice(0, 10), slice(2, 5), slice(5, 10), slice(10, 12)}).size(), 1u);
}

TEST(part_by_nesting, slices_across_each_other_do_not) {
  const auto parts = part_by_nesting({slice(0, 10), slice(5, 15), slice(12, 20)});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].size(), 2u);
}

TEST(part_by_nesting, whatever_comes_every_part_nests_and_nothing_is_lost) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<Slice> slices;
    for (int i = 0; i < 30; ++i) {
      const auto begin = static_cast<std::int64_t>(random() % 100);
      slices.push_back(slice(begin, begin + static_cast<std::int64_t>(random() % 30)));
    }
    std::size_t count = 0;
    for (const auto& part : part_by_nesting(slices)) {
      EXPECT_TRUE(nests(part));
      count += part.size();
    }
    EXPECT_EQ(count, slices.size());
  }
}

TEST(lanes_of, what_a_device_did_has_a_lane_of_its_own) {
  HandMade made(0, 2);
  made.collective(1, 0, 0, 100);
  TraceEntry device = made.trace().collectives[0];
  device.kind = static_cast<std::uint8_t>(Kind::device);
  device.begin = 20;
  device.end = 90;
  made.trace().device.push_back(device);
  const RankTrace rank = made;
  const auto lanes = lanes_of(rank);
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_EQ(lanes[1].kind, LaneKind::device);
  EXPECT_EQ(lanes[1].name, "device world");
  ASSERT_EQ(lanes[1].slices.size(), 1u);
  EXPECT_EQ(lanes[1].slices[0].begin, 20);
  EXPECT_EQ(lanes[1].slices[0].name, "all_reduce");
}

TEST(lanes_of, compute_is_cut_where_its_own_thread_waits) {
  const RankTrace rank = HandMade(0, 2)
                             .compute("forward", 0, 100)
                             .wait(1, 40, 60)
                             .wait(1, 70, 80, /*thread=*/8)
                             .collective(1, 5, 10, 60);
  const auto lanes = lanes_of(rank);
  ASSERT_GE(lanes.size(), 2u);
  EXPECT_EQ(lanes[0].name, "compute");
  ASSERT_EQ(lanes[0].slices.size(), 2u);
  EXPECT_EQ(lanes[0].slices[0].end, 40);
  EXPECT_EQ(lanes[0].slices[1].begin, 60);
  EXPECT_EQ(lanes[0].slices[1].end, 100);
  EXPECT_EQ(lanes[1].kind, LaneKind::wait);
  EXPECT_EQ(lanes[1].slices.at(0).name, "wait for all_reduce");
  EXPECT_EQ(lanes.back().name, "world");
}

TEST(lanes_of, a_wait_is_cut_where_its_thread_had_nothing_to_do) {
  const RankTrace rank = HandMade(0, 2)
                             .compute("forward 0", 0, 20)
                             .wait(0, 20, 100)
                             .bubble("recv_gradient 0 from stage 1", 20, 90)
                             .bubble("of another thread", 90, 100, /*thread=*/8);
  const auto lanes = lanes_of(rank);
  ASSERT_EQ(lanes.size(), 4u);
  EXPECT_EQ(lanes[1].kind, LaneKind::wait);
  ASSERT_EQ(lanes[1].slices.size(), 1u);
  EXPECT_EQ(lanes[1].slices[0].begin, 90);
  EXPECT_EQ(lanes[1].slices[0].end, 100);
  EXPECT_EQ(lanes[2].kind, LaneKind::bubble);
  EXPECT_EQ(lanes[2].name, "bubble");
  EXPECT_EQ(lanes[2].slices.at(0).name, "recv_gradient 0 from stage 1");
  EXPECT_EQ(lanes[3].name, "bubble of thread 2");
}

TEST(stretches, are_joined_cut_and_compared) {
  const Stretches a = union_of({{5, 10}, {0, 6}, {20, 30}, {7, 7}});
  ASSERT_EQ(a.size(), 2u);
  EXPECT_EQ(length_of(a), 20);
  EXPECT_EQ(length_of(common_of(a, {{8, 22}})), 4);
  EXPECT_EQ(length_of(without(a, {{8, 22}})), 16);
  EXPECT_EQ(length_of(without(a, {})), 20);
}

}  // namespace
}  // namespace tutti::trace
