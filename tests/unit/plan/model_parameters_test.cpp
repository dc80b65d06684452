// Parameters and FLOPs against sums made by hand, and against what the papers say.
#include <gtest/gtest.h>

#include "tutti/plan/model.hpp"

namespace tutti::plan {
namespace {

std::int64_t total(const char* name) { return count_parameters(*preset_model(name)).total; }

TEST(model_parameters, llama2_is_what_its_card_says) {
  EXPECT_EQ(total("llama2-7b"), 6738415616);    // 6.74 B
  EXPECT_EQ(total("llama2-13b"), 13015864320);  // 13.02 B
  EXPECT_EQ(total("llama2-70b"), 68976648192);  // 68.98 B, where 16h² a layer would give 85.9 B
}

TEST(model_parameters, llama3_is_what_its_card_says) {
  EXPECT_EQ(total("llama3-8b"), 8030261248);
  EXPECT_EQ(total("llama3-70b"), 70553706496);
  EXPECT_EQ(total("llama3.1-405b"), 405853388800);
}

TEST(model_parameters, gpt2_small_is_tied_and_has_124_million) {
  EXPECT_EQ(total("gpt2-small"), 124439808);
  EXPECT_EQ(total("gpt2-medium"), 354823168);
  EXPECT_EQ(total("gpt2-large"), 774030080);
  EXPECT_EQ(total("gpt2-xl"), 1557611200);
}

TEST(model_parameters, gpt3_175b_by_hand) {
  // 96 layers of 12h² + 13h, the word and 2048 position embeddings, one norm.
  const std::int64_t h = 12288;
  EXPECT_EQ(total("gpt3-175b"), 96 * (12 * h * h + 13 * h) + 50257 * h + 2048 * h + 2 * h);
  EXPECT_NEAR(static_cast<double>(total("gpt3-175b")), 174.6e9, 0.05e9);
}

TEST(model_parameters, gpt3_sizes_are_those_of_its_table) {
  const std::pair<const char*, double> sizes[] = {
      {"gpt3-125m", 125e6}, {"gpt3-350m", 350e6}, {"gpt3-760m", 760e6}, {"gpt3-1.3b", 1.3e9},
      {"gpt3-2.7b", 2.7e9}, {"gpt3-6.7b", 6.7e9}, {"gpt3-13b", 13e9}};
  for (const auto& [name, size] : sizes)
    EXPECT_NEAR(static_cast<double>(total(name)), size, 0.03 * size) << name;
}

TEST(model_parameters, a_layer_of_llama2_70b_by_hand) {
  const ParameterCount count = count_parameters(*preset_model("llama2-70b"));
  const std::int64_t h = 8192;
  EXPECT_EQ(count.attention, h * h * 2 + h * h * 2 * 8 / 64);  // h²(2 + 2·kv/heads)
  EXPECT_EQ(count.mlp, 3 * h * 28672);
  EXPECT_EQ(count.norms, 2 * h);
  EXPECT_EQ(count.biases, 0);
  EXPECT_EQ(count.head, 32000 * h);
  EXPECT_EQ(count.positions, 0);
}

TEST(model_parameters, sixteen_h_squared_is_the_gated_4h_case_only) {
  Model model{
      .name = "x", .layers = 1, .hidden = 64, .heads = 4, .ffn = 256, .vocab = 10, .glu = true};
  const ParameterCount count = count_parameters(*complete(model));
  EXPECT_EQ(count.attention + count.mlp, 16 * 64 * 64);
}

TEST(model_flops, a_tiny_model_by_hand) {
  // 2 layers, h 8, 2 heads, 1 kv head of 4, ffn 12 gated, vocab 10, seq 6.
  Model model{.name = "tiny",
              .layers = 2,
              .hidden = 8,
              .heads = 2,
              .kv_heads = 1,
              .ffn = 12,
              .vocab = 10,
              .glu = true};
  const TokenFlops flops = token_flops(*complete(model), 6);
  // Products a layer: q 8·8, k 8·4, v 8·4, projection 8·8, gate 8·12, up 8·12, down 12·8.
  EXPECT_EQ(flops.linear, 2 * 2 * (64 + 32 + 32 + 64 + 96 + 96 + 96));
  // Two heads, QKᵀ and PV: 2·2·4 FLOPs for each of 6 tokens, half of them in the future; 2 layers.
  EXPECT_EQ(flops.scores, 2 * (2 * 2 * 2 * 4 * 6) / 2);
  EXPECT_EQ(flops.head, 2 * 10 * 8);
  EXPECT_EQ(flops.forward(), 1920 + 192 + 160);
}

TEST(model_flops, near_6_per_parameter_and_token_for_large_models) {
  const Model model = *preset_model("gpt3-175b");
  EXPECT_NEAR(3 * token_flops(model, 2048).forward() / (6.0 * total("gpt3-175b")), 1.0, 0.02);
}

TEST(model_shape, what_is_not_said_follows_from_the_rest) {
  const Model model = *complete({.name = "x", .layers = 2, .hidden = 64, .heads = 4, .vocab = 10});
  EXPECT_EQ(model.kv_heads, 4);
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.ffn, 256);
}

TEST(model_shape, contradictions_are_named) {
  const auto message = [](Model model) { return complete(std::move(model)).status().message(); };
  EXPECT_NE(
      message({.name = "", .layers = 2, .hidden = 64, .heads = 6, .vocab = 10}).find("heads 6"),
      std::string::npos);
  EXPECT_NE(message({.name = "", .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 3, .vocab = 10})
                .find("kv_heads 3"),
            std::string::npos);
  EXPECT_NE(message({.name = "", .layers = 2, .hidden = 1 << 30, .heads = 1, .vocab = 10})
                .find("more than 10^17"),
            std::string::npos);
  EXPECT_NE(
      message({.name = "", .layers = 0, .hidden = 64, .heads = 4, .vocab = 10}).find("layers"),
      std::string::npos);
}

TEST(model_shape, an_unknown_preset_lists_the_names) {
  const Status status = preset_model("llama9").status();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("llama9"), std::string::npos);
  EXPECT_NE(status.message().find("gpt2-small"), std::string::npos);
  EXPECT_NE(status.message().find("llama3.1-405b"), std::string::npos);
}

TEST(model_shape, every_preset_is_complete) {
  for (const Model& model : preset_models()) {
    ASSERT_TRUE(complete(model).ok()) << model.name;
    EXPECT_EQ(count_parameters(*complete(model)).total, count_parameters(model).total);
    EXPECT_GT(model.context, 0);
  }
}

}  // namespace
}  // namespace tutti::plan
