// Attention over a sequence that is cut over ranks is the attention over the whole, forward and backward.
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

#include "parallel_support.hpp"
#include "tutti/libtorch/context_parallel.hpp"

namespace parallel_test {
namespace {

using namespace tutti::libtorch;  // NOLINT: the subject of this file
using tutti::exchange::SequenceCut;

struct Cut {
  int ranks = 1;
  ContextParallelOptions options{};
  bool causal = true;
  std::int64_t length = 16;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 4;
  double dropout = 0;
  torch::ScalarType type = torch::kDouble;
  double tolerance = 1e-12;
};

std::string name_of_cut(const testing::TestParamInfo<Cut>& info) {
  const Cut& cut = info.param;
  std::string name = std::string(to_string(cut.options.exchange)) + "_of_" +
                     std::to_string(cut.ranks) + "_" + std::string(to_string(cut.options.cut)) +
                     (cut.causal ? "_causal_" : "_full_") + std::to_string(cut.length);
  if (cut.options.window > 0) name += "_window_" + std::to_string(cut.options.window);
  if (cut.options.inner > 0) name += "_inner_" + std::to_string(cut.options.inner);
  if (cut.kv_heads != cut.heads) name += "_shared_heads";
  if (cut.dropout > 0) name += "_dropout";
  return name + "_" + c10::toString(cut.type);
}

std::vector<Cut> cuts() {
  const ContextParallelOptions ring{}, gather{.exchange = ContextExchange::all_gather},
      heads{.exchange = ContextExchange::all_to_all},
      both{.exchange = ContextExchange::all_to_all_ring, .inner = 2}, rings{.window = 2},
      contiguous{.cut = SequenceCut::contiguous};
  std::vector<Cut> list = {{1, ring}, {1, ring, false}};
  for (const bool causal : {true, false}) {
    for (const int ranks : {2, 3, 4}) {
      list.push_back({ranks, ring, causal, 24});
      list.push_back({ranks, gather, causal, 24});
      if (ranks != 3) list.push_back({ranks, heads, causal});
    }
    list.push_back({4, both, causal});
    list.push_back({4, rings, causal});
  }
  list.push_back({3, contiguous, true, 15});
  for (const auto& options : {ring, rings, gather, heads, both}) {
    list.push_back({4, options, true, 16, 4, 4, 0.3});  // dropout
    list.push_back({4, options, true, 16, 8, 4});       // two queries share a key
    list.push_back({4, options, true, 21});             // chunks of 3, and one that is empty
  }
  list.push_back({6, {.window = 3}, true, 24});
  list.push_back({4, ring, true, 16, 4, 4, 0, torch::kFloat, 2e-6});
  list.push_back({4, ring, true, 16, 4, 4, 0.1, torch::kBFloat16, 2e-2});
  return list;
}

constexpr std::int64_t kBatch = 2, kHead = 5;
const DropoutKey kAttentionKey{11, 2, 0, 9};

struct QueryKeyValue {
  torch::Tensor query, key, value, seed;
};

// Of the whole sequence.
QueryKeyValue whole_of(const Cut& cut) {
  const Shape shape = {kBatch, cut.heads, cut.length, kHead};
  const Shape kv_shape = {kBatch, cut.kv_heads, cut.length, kHead};
  return {draw(shape, 1, cut.type), draw(kv_shape, 2, cut.type), draw(kv_shape, 3, cut.type),
          draw(shape, 4, cut.type)};
}

// All scores at once, in plain operations of torch, in f64.
Tensors plain_attention(const Cut& cut) {
  const QueryKeyValue whole = whole_of(cut);
  const auto query = leaf(whole.query.to(torch::kDouble)), key = leaf(whole.key.to(torch::kDouble)),
             value = leaf(whole.value.to(torch::kDouble));
  const auto shared = cut.heads / cut.kv_heads;
  auto scores = torch::matmul(query, key.repeat_interleave(shared, 1).transpose(-2, -1)) /
                std::sqrt(static_cast<double>(kHead));
  if (cut.causal)
    scores = scores.masked_fill(torch::ones({cut.length, cut.length}, torch::kBool).triu(1),
                                -std::numeric_limits<double>::infinity());
  const auto weights = dropout_by_torch(
      torch::softmax(scores, -1), cut.dropout, kAttentionKey,
      {held_all(kBatch), held_all(cut.heads), held_all(cut.length), held_all(cut.length)});
  const auto output = torch::matmul(weights, value.repeat_interleave(shared, 1));
  output.backward(whole.seed.to(torch::kDouble));
  return {output.detach(), query.grad(), key.grad(), value.grad()};
}

class CutAttention : public testing::TestWithParam<Cut> {};

TEST_P(CutAttention, is_the_attention_over_the_whole) {
  const Cut& cut = GetParam();
  const Tensors wanted = plain_attention(cut);
  adapter_test::on_ranks(cut.ranks, [&](std::shared_ptr<Group> group) {
    auto ranks = ContextParallel::create(group, cut.options);
    ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
    const auto own =
        torch::tensor(tutti::exchange::indices_of((*ranks)->runs(cut.length)), torch::kLong);
    const auto part = [&](const torch::Tensor& whole) { return whole.index_select(2, own); };
    const QueryKeyValue whole = whole_of(cut);
    const auto query = leaf(part(whole.query)), key = leaf(part(whole.key)),
               value = leaf(part(whole.value));
    const auto output = attention(
        *ranks, query, key, value,
        {.causal = cut.causal, .length = cut.length, .dropout = cut.dropout, .key = kAttentionKey});
    output.backward(part(whole.seed));
    EXPECT_EQ(output.scalar_type(), cut.type);
    expect_close(output.detach(), part(wanted[0]), cut.tolerance, "output");
    expect_close(query.grad(), part(wanted[1]), cut.tolerance, "dq");
    expect_close(key.grad(), part(wanted[2]), cut.tolerance, "dk");
    expect_close(value.grad(), part(wanted[3]), cut.tolerance, "dv");
    EXPECT_EQ((*ranks)->take_times().wire_s > 0, cut.ranks > 1);
  });
}

INSTANTIATE_TEST_SUITE_P(Every, CutAttention, testing::ValuesIn(cuts()), name_of_cut);

// A part of the heads and of the batch, as tensor and data parallel ranks have them.
TEST(CutDropout, depends_on_the_place_of_heads_and_batch_in_the_whole) {
  const Cut cut{.dropout = 0.4};
  const Tensors wanted = plain_attention(cut);
  auto alone = ContextParallel::create(nullptr);
  ASSERT_TRUE(alone.ok());
  const QueryKeyValue whole = whole_of(cut);
  const auto part = [](const torch::Tensor& x) { return x.narrow(0, 1, 1).narrow(1, 2, 2); };
  const auto output = attention(*alone, part(whole.query), part(whole.key), part(whole.value),
                                {.dropout = cut.dropout,
                                 .key = kAttentionKey,
                                 .batch = {kBatch, {{1, 1}}},
                                 .heads = {cut.heads, {{2, 2}}}});
  expect_close(output, part(wanted[0]), 1e-12, "output");
}

void expect_error(const std::function<void()>& body, const std::string& text) {
  try {
    body();
    FAIL() << "nothing was wrong with it";
  } catch (const ParallelError& error) {
    EXPECT_NE(error.status().message().find(text), std::string::npos) << error.status().to_string();
  }
}

TEST(CutMistakes, are_named_with_their_numbers) {
  adapter_test::on_ranks(2, [](std::shared_ptr<Group> group) {
    const auto by_heads = ContextParallel::create(group, {.exchange = ContextExchange::all_to_all});
    const auto x = torch::ones({1, 3, 4, 2});
    expect_error([&] { (void)attention(*by_heads, x, x, x); }, "3 heads");
    expect_error([&] { (void)attention(*by_heads, x, x, x, {.length = 20}); }, "4 tokens");
    expect_error([&] { (void)attention(*by_heads, x, x.narrow(1, 0, 2), x.narrow(1, 0, 2)); },
                 "kv_heads");
    const auto status_of = [&](const ContextParallelOptions& options) {
      return ContextParallel::create(group, options).status().message();
    };
    EXPECT_NE(status_of({.window = 3}).find("windows of 3"), std::string::npos);
    EXPECT_NE(status_of({.exchange = ContextExchange::all_to_all_ring}).find("inner groups of 0"),
              std::string::npos);
    EXPECT_NE(status_of({.exchange = ContextExchange::all_to_all, .window = 2}).find("window"),
              std::string::npos);
  });
}

// Found out in the middle of the exchange. A rank that needed nothing more of the other may still come to its end.
TEST(CutMistakes, in_one_rank_s_product_end_the_group_of_all) {
  adapter_test::on_ranks(3, [](std::shared_ptr<Group> group) {
    const auto ranks = ContextParallel::create(group);
    (void)group->barrier().ok();  // all have joined before it ends
    const auto x = torch::ones({1, 2, 4, 2});
    const bool wrong = group->rank() == 1;
    try {
      // Places that dropout cannot take.
      (void)attention(*ranks, x, x, x, {.dropout = 0.1, .heads = {2, {{wrong ? 1 : 0, 2}}}});
      EXPECT_FALSE(wrong);
    } catch (const ParallelError& error) {
      EXPECT_EQ(error.status().code(), wrong ? tutti::Code::invalid_argument : tutti::Code::aborted)
          << error.status().to_string();
    }
    const tutti::Status after = group->barrier();
    EXPECT_EQ(after.code(), tutti::Code::aborted);
    EXPECT_NE(after.message().find("dropout"), std::string::npos) << after.to_string();
  });
}

TEST(ContextExchangeWords, are_megatrons) {
  EXPECT_EQ(parse_cp_comm_type("p2p"), ContextExchange::ring);
  EXPECT_EQ(parse_cp_comm_type("allgather"), ContextExchange::all_gather);
  EXPECT_EQ(parse_cp_comm_type("a2a"), ContextExchange::all_to_all);
  EXPECT_EQ(parse_cp_comm_type("a2a+p2p"), ContextExchange::all_to_all_ring);
  EXPECT_FALSE(parse_cp_comm_type("ring"));
}

}  // namespace
}  // namespace parallel_test
