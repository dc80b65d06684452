#include "train/bucket_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace tutti::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Parameter parameter(std::string name, std::size_t count, Dtype dtype = Dtype::f32) {
  Parameter result;
  result.name = std::move(name);
  result.value.count = count;
  result.value.dtype = dtype;
  return result;
}

std::vector<Parameter> four_of(std::size_t count) {
  return {parameter("a", count), parameter("b", count), parameter("c", count),
          parameter("d", count)};
}

TEST(layout, without_an_order_takes_the_reverse_of_the_definition) {
  const auto layout = make_layout(four_of(100), {}, 1 << 20, 2);
  // 400 bytes each: all of them fit into the tail's share.
  ASSERT_EQ(layout.buckets.size(), 1u);
  EXPECT_THAT(layout.buckets[0].parameters, ElementsAre(3, 2, 1, 0));
}

TEST(layout, starts_parameters_on_blocks_and_pads_buckets_to_whole_shards) {
  const auto layout = make_layout(four_of(65), {}, 1 << 20, 3);
  EXPECT_EQ(layout.place[3]->offset, 0u);
  EXPECT_EQ(layout.place[2]->offset, 128u);
  EXPECT_EQ(layout.place[0]->offset, 384u);
  EXPECT_EQ(layout.buckets[0].elements, 768u);  // 512 rounded up to 128 · 3
}

TEST(layout, keeps_the_bucket_that_is_ready_last_small) {
  const std::size_t bucket_bytes = 8000;  // 2000 elements; the tail gets an eighth
  std::vector<Parameter> parameters;
  for (int i = 0; i < 20; ++i) parameters.push_back(parameter("p" + std::to_string(i), 200));
  const auto layout = make_layout(parameters, {}, bucket_bytes, 1);
  ASSERT_GE(layout.buckets.size(), 3u);
  EXPECT_THAT(layout.buckets.back().parameters, ElementsAre(0));
  EXPECT_EQ(layout.buckets[layout.buckets.size() - 2].parameters.size(), 10u);
}

TEST(layout, keeps_a_bias_with_the_weight_that_is_ready_after_it) {
  std::vector<Parameter> parameters;
  for (int i = 0; i < 8; ++i) {
    parameters.push_back(parameter("weight" + std::to_string(i), 1000));
    parameters.push_back(parameter("bias" + std::to_string(i), 10));
  }
  const auto layout = make_layout(parameters, {}, 4000, 1);
  ASSERT_EQ(layout.buckets.size(), 8u);
  for (std::size_t b = 0; b < 8; ++b) {
    const std::size_t weight = 2 * (7 - b);
    EXPECT_THAT(layout.buckets[b].parameters, ElementsAre(weight + 1, weight));
  }
}

TEST(layout, gives_a_tied_parameter_a_bucket_of_its_own_and_names_it_as_the_tails_cause) {
  auto parameters = four_of(100);
  parameters[0].aliases = {"head"};
  const auto layout = make_layout(parameters, {}, 1 << 20, 2);
  ASSERT_EQ(layout.buckets.size(), 2u);
  EXPECT_THAT(layout.buckets[1].parameters, ElementsAre(0));
  EXPECT_THAT(tail_cause(parameters, layout), HasSubstr("because a is tied to head"));
}

TEST(layout, follows_the_order_that_was_seen) {
  const auto layout = make_layout(four_of(100), {{1, 3, 0, 2}, {2, 0, 3, 1}}, 400, 1);
  ASSERT_EQ(layout.buckets.size(), 4u);
  EXPECT_THAT(layout.buckets[0].parameters, ElementsAre(1));
  EXPECT_THAT(layout.buckets[3].parameters, ElementsAre(2));
  EXPECT_THAT(layout.forward, ElementsAre(3, 2, 1, 0));
}

TEST(layout, puts_what_was_not_seen_last_in_backward_and_first_in_forward) {
  const auto layout = make_layout(four_of(100), {{1, 3}, {3, 1}}, 400, 1);
  EXPECT_THAT(layout.buckets[0].parameters, ElementsAre(1));
  EXPECT_THAT(layout.buckets[1].parameters, ElementsAre(3));
  EXPECT_THAT(layout.forward, ElementsAre(3, 2, 1, 0));
}

TEST(layout, mixes_no_dtypes_and_leaves_frozen_parameters_out) {
  auto parameters = four_of(100);
  parameters[1].value.dtype = Dtype::bf16;
  parameters[2].frozen = true;
  const auto layout = make_layout(parameters, {}, 1 << 20, 1);
  EXPECT_FALSE(layout.place[2].has_value());
  for (const BucketPlan& bucket : layout.buckets)
    for (std::size_t index : bucket.parameters)
      EXPECT_EQ(parameters[index].value.dtype, bucket.dtype);
  EXPECT_EQ(layout.buckets.size(), 2u);
}

TEST(layout, places_every_parameter_once_without_overlap_whatever_the_order) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Parameter> parameters;
    for (int i = 0; i < 30; ++i)
      parameters.push_back(parameter(std::to_string(i), random() % 700,
                                     random() % 3 == 0 ? Dtype::bf16 : Dtype::f32));
    Order order;
    for (std::size_t i = 0; i < 30; ++i)
      if (random() % 4 != 0) order.backward.push_back(i);
    std::shuffle(order.backward.begin(), order.backward.end(), random);
    const int ranks = 1 + static_cast<int>(random() % 5);
    const auto layout = make_layout(parameters, order, 64 + random() % 5000, ranks);
    std::size_t placed = 0;
    for (const BucketPlan& bucket : layout.buckets) {
      std::size_t end = 0;
      for (std::size_t index : bucket.parameters) {
        const std::size_t offset = layout.place[index]->offset;
        EXPECT_EQ(offset % kBlock, 0u);
        EXPECT_GE(offset, end);
        end = offset + parameters[index].count();
        ++placed;
      }
      EXPECT_LE(end, bucket.elements);
      EXPECT_EQ(bucket.elements % (128 * static_cast<std::size_t>(ranks)), 0u);
    }
    EXPECT_EQ(placed, parameters.size());
    EXPECT_EQ(layout.forward.size(), layout.buckets.size());
  }
}

TEST(layout, puts_sums_last_and_by_name_whatever_the_order_and_what_does_not_count_by_itself) {
  std::vector<Parameter> parameters;
  for (const char* name : {"z", "a", "m", "x", "b"}) parameters.push_back(parameter(name, 100));
  parameters[0].place.sum = parameters[1].place.sum = 0;
  parameters[2].place.sum = 1;
  parameters[3].place.counted = false;
  for (const std::vector<std::size_t>& backward :
       {std::vector<std::size_t>{0, 1, 2, 3, 4}, std::vector<std::size_t>{4, 3, 1, 2, 0}}) {
    const auto layout = make_layout(parameters, {backward, {}}, 1 << 20, 2);
    ASSERT_EQ(layout.buckets.size(), 4u);
    for (const BucketPlan& bucket : layout.buckets)
      EXPECT_EQ(bucket.counted, bucket.parameters[0] != 3) << "by itself";
    EXPECT_THAT(layout.buckets[2].parameters, ElementsAre(1, 0));
    EXPECT_EQ(layout.buckets[2].sum, 0);
    EXPECT_THAT(layout.buckets[3].parameters, ElementsAre(2));
    EXPECT_EQ(layout.buckets[3].sum, 1);
    EXPECT_EQ(layout.buckets[0].sum, -1);
    EXPECT_EQ(layout.buckets[1].sum, -1);
  }
}

}  // namespace
}  // namespace tutti::train
