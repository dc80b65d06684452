#include "shape.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "data.hpp"
#include "range.hpp"

namespace pretrain {

namespace {

constexpr const char* kGroup = "Model";

void add_parts(CLI::App& app, Flags& flags) {
  app.add_flag("--group-query-attention", flags.group_query_attention,
               "Several heads share a key and a value")
      ->group(kGroup);
  app.add_option("--num-query-groups", flags.num_query_groups,
                 "Keys and values of a token; with --group-query-attention")
      ->check(whole(1, 1 << 16))
      ->group(kGroup);
  app.add_option(
         "--ffn-hidden-size", flags.ffn_hidden_size,
         "Width of the MLP; 0: 4 times --hidden-size, or with --swiglu two thirds of that, in "
         "multiples of 64")
      ->check(whole(0, 1 << 22))
      ->group(kGroup);
  app.add_flag("--swiglu", flags.swiglu, "A gated MLP: silu(gate) times up")->group(kGroup);
  app.add_option("--position-embedding-type", flags.position_embedding_type,
                 "learned_absolute, or rope: queries and keys turn with their positions")
      ->check(CLI::IsMember({kLearned, kRope}))
      ->group(kGroup);
  app.add_option("--rotary-base", flags.rotary_base,
                 "Of rope: the slowest turn's period is about 2 pi times it")
      ->check(real({.least = 1, .most = 1e12, .above = true}))
      ->group(kGroup);
  app.add_option("--normalization", flags.normalization, "LayerNorm, or RMSNorm, which has no bias")
      ->check(CLI::IsMember({kLayerNorm, kRmsNorm}))
      ->group(kGroup);
  app.add_option("--norm-epsilon", flags.norm_epsilon)
      ->check(real({.least = 0, .most = 1, .above = true}))
      ->group(kGroup);
  app.add_flag("--disable-bias-linear", flags.disable_bias_linear, "Linear layers without biases")
      ->group(kGroup);
}

}  // namespace

void add_shape(CLI::App& app, Flags& flags) {
  app.add_option(
         "--preset", flags.preset,
         "A model of `tutti plan model --preset list`, such as llama2-7b: its layers and their parts, "
         "for all flags of a model that are not given")
      ->group(kGroup);
  app.add_option("--num-layers", flags.num_layers, "Transformer blocks")
      ->check(whole(1, 10000))
      ->group(kGroup);
  app.add_option("--hidden-size", flags.hidden_size, "Width")
      ->check(whole(1, 1 << 20))
      ->group(kGroup);
  app.add_option("--num-attention-heads", flags.num_attention_heads, "Heads, of equal width")
      ->check(whole(1, 1 << 16))
      ->group(kGroup);
  add_parts(app, flags);
  app.add_option("--seq-length", flags.seq_length, "Tokens of a sequence")
      ->check(whole(1, 1 << 20))
      ->group(kGroup);
  app.add_option("--dropout", flags.dropout, "Share of activations dropped")
      ->check(real({.least = 0, .most = 1, .below = true}))
      ->group(kGroup);
  app.add_flag("--untie-embeddings-and-output-weights", flags.untie_embeddings_and_output_weights,
               "A head of its own instead of the word embedding")
      ->group(kGroup);
  app.add_flag("--shuffle-definition-order", flags.shuffle_definition_order,
               "Define linear_proj before linear_qkv")
      ->group("For tests");
}

void take_preset(const CLI::App& app, Flags& flags) {
  if (flags.preset.empty()) return;
  const auto model = tutti::plan::preset_model(flags.preset);
  if (!model.ok()) throw CLI::ValidationError("--preset", model.status().message());
  const auto take = [&](const char* name, auto& flag, auto value) {
    if (app.count(name) == 0) flag = static_cast<std::decay_t<decltype(flag)>>(value);
  };
  const bool rotary = model->max_positions == 0;
  take("--num-layers", flags.num_layers, model->layers);
  take("--hidden-size", flags.hidden_size, model->hidden);
  take("--num-attention-heads", flags.num_attention_heads, model->heads);
  take("--group-query-attention", flags.group_query_attention, model->kv_heads != model->heads);
  take("--num-query-groups", flags.num_query_groups, model->kv_heads);
  take("--ffn-hidden-size", flags.ffn_hidden_size, model->ffn);
  take("--swiglu", flags.swiglu, model->glu);
  take("--position-embedding-type", flags.position_embedding_type, rotary ? kRope : kLearned);
  take("--normalization", flags.normalization, model->bias ? kLayerNorm : kRmsNorm);
  take("--disable-bias-linear", flags.disable_bias_linear, !model->bias);
  take("--seq-length", flags.seq_length, model->context);
  take("--untie-embeddings-and-output-weights", flags.untie_embeddings_and_output_weights,
       !model->tied);
}

int Flags::ffn() const {
  if (ffn_hidden_size > 0) return ffn_hidden_size;
  return swiglu ? std::max(8 * hidden_size / 3 / 64 * 64, 64) : 4 * hidden_size;
}

tutti::Status check_shape(const Flags& flags) {
  const int heads = flags.num_attention_heads, groups = flags.query_groups();
  if (flags.hidden_size % heads != 0)
    return misfit(fmt::format("--hidden-size {} is not a multiple of --num-attention-heads {}",
                              flags.hidden_size, heads));
  if (groups > heads || heads % groups != 0)
    return misfit(fmt::format("--num-attention-heads {} is not a multiple of --num-query-groups {}",
                              heads, groups));
  if (!flags.group_query_attention && flags.num_query_groups != 1 &&
      flags.num_query_groups != heads)
    return misfit(
        fmt::format("--num-query-groups {} needs --group-query-attention", flags.num_query_groups));
  if (flags.has_rotary() && flags.hidden_size / heads % 2 != 0)
    return misfit(
        fmt::format("--position-embedding-type rope turns features in pairs, and heads have {}",
                    flags.hidden_size / heads));
  return {};
}

tutti::Result<tutti::plan::Model> shape_of(const Flags& flags) {
  tutti::plan::Model shape;
  shape.layers = flags.num_layers;
  shape.hidden = flags.hidden_size;
  shape.heads = flags.num_attention_heads;
  shape.kv_heads = flags.query_groups();
  shape.ffn = flags.ffn();
  shape.vocab = flags.vocabulary();
  shape.max_positions = flags.has_rotary() ? 0 : flags.seq_length;
  shape.context = flags.seq_length;
  shape.glu = flags.swiglu;
  shape.tied = !flags.untie_embeddings_and_output_weights;
  shape.bias = flags.has_bias();
  shape.dropout = flags.dropout > 0;
  return tutti::plan::complete(shape);
}

}  // namespace pretrain
