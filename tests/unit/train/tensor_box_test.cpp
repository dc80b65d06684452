#include "train/tensor_box.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tutti::train {
namespace {

// Every element of the box by its number in the tensor, counted out.
std::vector<std::size_t> elements_of(const TensorBox& box) {
  std::vector<std::size_t> all;
  std::vector<std::int64_t> at(box.whole.size(), 0);
  if (count_of(box.extent) == 0) return all;
  while (true) {
    std::size_t number = 0;
    for (std::size_t d = 0; d < at.size(); ++d)
      number = number * static_cast<std::size_t>(box.whole[d]) +
               static_cast<std::size_t>(box.first[d] + at[d]);
    all.push_back(number);
    std::size_t d = at.size();
    while (d > 0 && ++at[d - 1] == box.extent[d - 1]) at[--d] = 0;
    if (d == 0) return all;
  }
}

TensorBox random_box(const std::vector<std::int64_t>& whole, std::mt19937& random) {
  TensorBox box{whole, {}, {}};
  for (const std::int64_t extent : whole) {
    const auto first = static_cast<std::int64_t>(random() % static_cast<unsigned>(extent));
    const auto most = static_cast<unsigned>(extent - first);
    box.first.push_back(random() % 3 == 0 ? 0 : first);
    box.extent.push_back(box.first.back() == 0 && random() % 2 == 0
                             ? extent
                             : static_cast<std::int64_t>(random() % (most + 1)));
  }
  return box;
}

std::vector<std::int64_t> random_shape(std::mt19937& random) {
  std::vector<std::int64_t> shape(1 + random() % 4);
  for (auto& extent : shape) extent = 1 + static_cast<std::int64_t>(random() % 6);
  return shape;
}

TEST(TensorBox, runs_are_the_elements_of_any_range_in_the_order_of_the_box) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const TensorBox box = random_box(random_shape(random), random);
    const auto expected = elements_of(box);
    const std::size_t first = random() % (expected.size() + 1);
    const std::size_t count = random() % (expected.size() - first + 1);
    std::vector<std::size_t> found;
    for (const ElementRun& run : runs_of(box, first, count)) {
      EXPECT_EQ(run.box, found.size());
      for (std::size_t i = 0; i < run.count; ++i) found.push_back(run.tensor + i);
    }
    ASSERT_TRUE(std::equal(found.begin(), found.end(),
                           expected.begin() + static_cast<std::ptrdiff_t>(first),
                           expected.begin() + static_cast<std::ptrdiff_t>(first + count)));
  }
}

TEST(TensorBox, simplified_has_the_same_elements_and_no_dimension_too_many) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 2000; ++trial) {
    const TensorBox box = random_box(random_shape(random), random);
    if (count_of(box.extent) == 0) continue;
    const TensorBox simple = simplified(box);
    ASSERT_EQ(elements_of(simple), elements_of(box));
    // As many runs as there are stretches.
    const auto elements = elements_of(box);
    std::size_t stretches = 1;
    for (std::size_t i = 1; i < elements.size(); ++i)
      stretches += elements[i] != elements[i - 1] + 1;
    ASSERT_LE(runs_of(simple, 0, elements.size()).size(), runs_of(box, 0, elements.size()).size());
    if (stretches == 1) {
      ASSERT_EQ(simple.whole.size(), 1u);
    }
  }
  const TensorBox whole{{2, 3, 4}, {0, 0, 0}, {2, 3, 4}};
  EXPECT_EQ(simplified(whole), (TensorBox{{24}, {0}, {24}}));
  const TensorBox by_heads{{3, 4, 5, 6}, {0, 2, 0, 0}, {3, 2, 5, 6}};
  EXPECT_EQ(simplified(by_heads), (TensorBox{{3, 120}, {0, 60}, {3, 60}}));
}

TEST(TensorBox, boxes_have_common_elements_exactly_where_their_elements_are_the_same) {
  std::mt19937 random(3);
  int common = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const auto shape = random_shape(random);
    const TensorBox a = random_box(shape, random);
    TensorBox b = random_box(shape, random);
    const auto ours = elements_of(a), theirs = elements_of(b);
    std::vector<std::size_t> both;
    std::set_intersection(ours.begin(), ours.end(), theirs.begin(), theirs.end(),
                          std::back_inserter(both));
    if (random() % 2 == 0 && !theirs.empty())
      b = simplified(b);  // another shape, the same elements
    ASSERT_EQ(have_common_elements(a, b), !both.empty());
    common += !both.empty();
  }
  EXPECT_GT(common, 200);
  EXPECT_LT(common, 1800);
}

}  // namespace
}  // namespace tutti::train
