// What depends on the place in the whole tensor alone, not on how it is split: dropout and first values.
#include <ATen/CPUGeneratorImpl.h>

#include "dropout_bits.hpp"
#include "parallel_support.hpp"
#include "tutti/libtorch/dropout.hpp"
#include "tutti/libtorch/initial_values.hpp"

namespace parallel_test {
namespace {

using namespace tutti::libtorch;  // NOLINT: the subject of this file
using tutti::exchange::IndexRun;

const DropoutKey kKey{7, 3, 1, 42};

// Of the authors' own test vectors (Random123, kat_vectors).
TEST(Philox, gives_the_published_answers) {
  using Block = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, loop_over_elements_is_block_by_block) {
  const DropoutStream stream{{5, 6}, {7, 8}};
  const std::uint64_t first = (std::uint64_t{1} << 34) - 3;  // counters of 64 bits, not aligned
  std::vector<float> in(2000, 1), out(2000);
  drop(stream, 1u << 31, 2.0F, {first, in.size()}, in.data(), out.data());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::uint64_t element = first + i, block = element / 4;
    const auto words = philox(
        {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 7, 8}, {5, 6});
    ASSERT_EQ(out[i], words[element % 4] >= 1u << 31 ? 2.0F : 0.0F) << i;
  }
}

class Dropout : public testing::TestWithParam<torch::ScalarType> {};

TEST_P(Dropout, fast_path_has_the_bits_of_the_plain_one) {
  const auto x = draw({3, 5, 11}, 1, GetParam());
  const std::vector<HeldIndices> where = {
      {9, {{1, 1}, {4, 2}}}, {5, {{0, 5}}}, {70, {{2, 3}, {33, 8}}}};
  const auto fast = leaf(x), plain = leaf(x);
  const auto y = dropout(fast, 0.3, kKey, where), z = dropout_by_torch(plain, 0.3, kKey, where);
  EXPECT_TRUE(torch::equal(y, z));
  EXPECT_GT(y.eq(0).sum().item<std::int64_t>(), 0);
  const auto seed = draw({3, 5, 11}, 2, GetParam());
  y.backward(seed);
  z.backward(seed);
  EXPECT_TRUE(torch::equal(fast.grad(), plain.grad()));
  EXPECT_TRUE(torch::equal(fast.grad().eq(0), y.eq(0))) << "gradients pass where values did";
}

TEST_P(Dropout, parts_drop_what_the_whole_drops) {
  const auto x = draw({4, 16, 6}, 1, GetParam());
  const auto whole = dropout(x, 0.5, kKey, {held_all(4), held_all(16), held_all(6)});
  for (int cp = 1; cp <= 4; ++cp) {
    for (int rank = 0; rank < cp; ++rank) {
      const auto runs =
          tutti::exchange::runs_of(tutti::exchange::SequenceCut::zigzag, 16, cp, rank);
      const auto places = torch::tensor(tutti::exchange::indices_of(runs));
      const auto part = dropout(x.index_select(1, places).narrow(2, 1, 4), 0.5, kKey,
                                {held_all(4), {16, runs}, {6, {{1, 4}}}});
      EXPECT_TRUE(torch::equal(part, whole.index_select(1, places).narrow(2, 1, 4)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Dropout,
                         testing::Values(torch::kFloat, torch::kDouble, torch::kBFloat16),
                         [](const auto& info) { return c10::toString(info.param); });

TEST(DropoutBits, keep_as_many_as_they_should_and_differ_in_every_part_of_the_key) {
  const auto ones = torch::ones({300, 1000});
  const std::vector<HeldIndices> where = {held_all(300), held_all(1000)};
  const auto kept = [&](const DropoutKey& key) { return dropout(ones, 0.1, key, where).ne(0); };
  const auto mask = kept(kKey);
  // 300,000 draws: five standard deviations are 0.0027.
  EXPECT_NEAR(mask.to(torch::kDouble).mean().item<double>(), 0.9, 0.0027);
  for (const DropoutKey& other : {DropoutKey{8, 3, 1, 42}, DropoutKey{7, 4, 1, 42},
                                  DropoutKey{7, 3, 2, 42}, DropoutKey{7, 3, 1, 43}}) {
    const double agree = mask.eq(kept(other)).to(torch::kDouble).mean().item<double>();
    EXPECT_NEAR(agree, 0.82, 0.004) << "as independent masks do";
  }
  EXPECT_TRUE(torch::equal(dropout(ones, 0, kKey, where), ones));
}

TEST(DropoutBits, wrong_probability_or_place_is_named) {
  const auto x = torch::ones({2, 3});
  EXPECT_THROW((void)dropout(x, 1, kKey, {held_all(2), held_all(3)}), ParallelError);
  EXPECT_THROW((void)dropout(x, -0.1, kKey, {held_all(2), held_all(3)}), ParallelError);
  EXPECT_THROW((void)dropout(x, 0.1, kKey, {held_all(2)}), ParallelError);
  EXPECT_THROW((void)dropout(x, 0.1, kKey, {held_all(2), {5, {{1, 2}}}}), ParallelError);
  EXPECT_THROW((void)dropout(x, 0.1, kKey, {held_all(2), {5, {{3, 3}}}}), ParallelError);
}

TEST(InitialValues, part_is_the_slice_of_what_one_process_draws) {
  const std::string name = "decoder.layers.0.self_attention.linear_qkv.weight";
  torch::manual_seed(seed_of_name(1234, name));  // as an unsplit model draws them
  const auto whole = torch::empty({24, 7}).normal_(0.0, 0.02);
  for (const auto type : {torch::kFloat, torch::kBFloat16, torch::kDouble}) {
    for (std::int64_t head = 0; head < 4; ++head) {
      const auto placed = Placed::part_of({24, 7}, {3, 4, 2, 7}, 1, head, 1);
      auto part = torch::empty({6, 7}, type);
      fill_normal(part, placed, 1234, name, 0.02);
      EXPECT_TRUE(
          torch::equal(part, whole.view({3, 4, 2, 7}).select(1, head).reshape({6, 7}).to(type)));
    }
  }
}

TEST(InitialValues, depend_on_seed_and_name) {
  EXPECT_NE(seed_of_name(1, "a"), seed_of_name(2, "a"));
  EXPECT_NE(seed_of_name(1, "a"), seed_of_name(1, "b"));
}

}  // namespace
}  // namespace parallel_test
