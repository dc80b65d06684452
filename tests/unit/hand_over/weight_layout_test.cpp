#include "hand_over/weight_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "hand_over/flat_copy.hpp"

namespace tutti::hand_over {
namespace {

using testing::HasSubstr;

std::vector<train::NamedTensor> example(const std::vector<float>& values) {
  return {{"a \"b\"", {2, 3}, ConstBuffer::of(values.data(), 6)},
          {"none", {0}, ConstBuffer::of(values.data(), 0)},
          {"bf16", {5}, ConstBuffer(values.data(), 5, Dtype::bf16)},
          {"scalar", {}, ConstBuffer::of(values.data(), 1)}};
}

TEST(HandOverLayout, reads_back_from_its_text) {
  const std::vector<float> values(8);
  const auto layout = layout_of(example(values));
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  EXPECT_EQ(layout->bytes, 132u);
  const auto again = parse_layout(layout->text);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->hash, layout->hash);
  EXPECT_EQ(again->bytes, layout->bytes);
  ASSERT_EQ(again->places.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(again->places[i].name, layout->places[i].name);
    EXPECT_EQ(again->places[i].offset, layout->places[i].offset);
    EXPECT_EQ(again->places[i].offset % 64, 0u);
  }
}

TEST(HandOverLayout, refuses_texts_that_it_would_not_write) {
  for (const char* bad :
       {"", "{}", "[1]", "[", R"([{"name":"a","dtype":"f32"}])",
        R"([{"name":"a","dtype":"f99","shape":[1]}])",
        R"([{"name":"a","dtype":"f32","shape":[-1]}])",
        R"([{"name":"a","dtype":"f32","shape":[1.5]}])",
        R"([{"name":"a","dtype":"f32","shape":[1]} ])",
        R"([{"name":"a","dtype":"f32","shape":[4000000000,4000000000,4000000000]}])"})
    EXPECT_EQ(parse_layout(bad).status().code(), Code::corrupt) << bad;
  EXPECT_TRUE(parse_layout("[]").ok());
}

TEST(HandOverLayout, copies_are_cut_into_buckets_that_cover_every_byte) {
  const std::vector<float> values(8);
  const auto layout = layout_of(example(values));
  FlatCopy copy(std::make_shared<FreedLater>());
  ASSERT_TRUE(copy.prepare(*layout).ok());
  for (std::size_t bucket_bytes : {1, 7, 66, 131, 132, 133, 1000}) {
    std::size_t covered = 0;
    const auto pieces = pieces_of(*layout, bucket_bytes, false);
    EXPECT_EQ(pieces.size(), count_pieces(*layout, bucket_bytes, false));
    for (const WeightPiece& piece : pieces) {
      EXPECT_EQ(copy.at(piece).data, copy.data() + covered);
      EXPECT_EQ(copy.at(piece).bytes(), piece.bytes);
      EXPECT_GT(piece.bytes, 0u);
      covered += piece.bytes;
    }
    EXPECT_EQ(covered, copy.bytes());
  }
  EXPECT_EQ(count_pieces(*layout_of({}), 10, false), 0u);
  const std::byte* before = copy.data();
  ASSERT_TRUE(copy.prepare(*layout).ok());
  EXPECT_EQ(copy.data(), before) << "the same layout keeps its memory";
}

TEST(HandOverLayout, tensors_are_cut_one_by_one_where_they_are_lent) {
  const std::vector<float> values(8);
  const auto layout = layout_of(example(values));
  for (std::size_t bucket_bytes : {1, 7, 24, 1000}) {
    const auto pieces = pieces_of(*layout, bucket_bytes, true);
    EXPECT_EQ(pieces.size(), count_pieces(*layout, bucket_bytes, true));
    std::vector<std::size_t> covered(layout->places.size());
    for (const WeightPiece& piece : pieces) {
      const TensorPlace& place = layout->places[piece.tensor];
      EXPECT_EQ(piece.offset, place.offset + covered[piece.tensor]);
      EXPECT_LE(piece.bytes, bucket_bytes);
      covered[piece.tensor] += piece.bytes;
    }
    for (std::size_t i = 0; i < covered.size(); ++i)
      EXPECT_EQ(covered[i], layout->places[i].bytes());
  }
}

TEST(HandOverLayout, weights_that_do_not_lie_alike_are_named) {
  const std::vector<float> values(8);
  auto weights = example(values);
  weights[2].values.device = Device::cuda;
  EXPECT_THAT(layout_of(weights).status().message(), HasSubstr("'bf16' is not where 'a \"b\"' is"));
  weights[2].values.device = Device::cpu;
  weights[2].values.ready = &weights;
  EXPECT_THAT(layout_of(weights).status().message(), HasSubstr("'bf16'"));
}

TEST(HandOverChecksum, changes_with_every_bit_and_with_the_length) {
  std::vector<unsigned char> bytes(100, 0);
  std::set<std::uint64_t> seen;
  for (std::size_t length = 0; length <= bytes.size(); ++length)
    EXPECT_TRUE(seen.insert(checksum(bytes.data(), length)).second) << length;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<unsigned char>(1 << bit % 8);
    EXPECT_TRUE(seen.insert(checksum(bytes.data(), bytes.size())).second) << bit;
    bytes[bit / 8] = 0;
  }
}

}  // namespace
}  // namespace tutti::hand_over
