// Memory against published formulas: 18 bytes a parameter and its shares, Megatron's activations.
#include <gtest/gtest.h>

#include "plan/memory.hpp"
#include "tutti/plan/memory.hpp"

namespace tutti::plan {
namespace {

ModelLayout sequence_layout(int dp, int tp, int pp, int zero, int seq, int micro_batch,
                            int micro_batches) {
  ModelLayout layout;
  layout.dp = dp;
  layout.tp = tp;
  layout.pp = pp;
  layout.zero = zero;
  layout.seq = seq;
  layout.micro_batch = micro_batch;
  layout.global_batch = std::int64_t{dp} * micro_batch * micro_batches;
  layout.sequence_parallel = tp > 1;
  return layout;
}

TEST(model_memory, bytes_a_parameter_by_precision_and_sharding) {
  const Precision bf16 = *parse_precision("bf16");
  EXPECT_DOUBLE_EQ(bytes_per_parameter(bf16, 0, 8), 18);
  EXPECT_DOUBLE_EQ(bytes_per_parameter(bf16, 1, 8), 6 + 12.0 / 8);
  EXPECT_DOUBLE_EQ(bytes_per_parameter(bf16, 2, 8), 2 + 16.0 / 8);
  EXPECT_DOUBLE_EQ(bytes_per_parameter(bf16, 3, 8), 18.0 / 8);
  EXPECT_DOUBLE_EQ(bytes_per_parameter(*parse_precision("fp16"), 1, 4), 4 + 16.0 / 4);
  EXPECT_DOUBLE_EQ(bytes_per_parameter(*parse_precision("fp32"), 1, 4), 8 + 8.0 / 4);
  EXPECT_FALSE(parse_precision("fp8").has_value());
}

// Megatron: s·b·h·(34 + 5·a·s/h) a layer, over t with sequence parallelism.
TEST(model_memory, activations_of_a_layer_are_megatrons) {
  const Model model = *preset_model("gpt3-175b");
  const ModelLayout layout = sequence_layout(1, 8, 1, 0, 2048, 1, 1);
  const double sbh = 2048.0 * 12288;
  EXPECT_DOUBLE_EQ(layer_activations(model, layout, Recompute::none).total(),
                   sbh * (34 + 5.0 * 96 * 2048 / 12288) / 8);
  EXPECT_DOUBLE_EQ(layer_activations(model, layout, Recompute::selective).total(), sbh * 34 / 8);
  EXPECT_DOUBLE_EQ(layer_activations(model, layout, Recompute::full).total(), sbh * 2 / 8);
}

// Without it: s·b·h·(10 + 24/t + 5·a·s/(h·t)).
TEST(model_memory, without_sequence_parallelism_ten_of_34_stay_whole) {
  const Model model = *preset_model("gpt3-175b");
  ModelLayout layout = sequence_layout(1, 8, 1, 0, 2048, 2, 1);
  layout.sequence_parallel = false;
  const double sbh = 2048.0 * 2 * 12288;
  EXPECT_DOUBLE_EQ(layer_activations(model, layout, Recompute::none).total(),
                   sbh * (10 + 24.0 / 8 + 5.0 * 96 * 2048 / 12288 / 8));
}

TEST(model_memory, gated_mlps_and_grouped_queries_are_counted_as_they_are) {
  const Model model = *preset_model("llama2-70b");
  const ModelLayout layout = sequence_layout(1, 1, 1, 0, 4096, 1, 1);
  // Four inputs of h; Q, projection input of h, K and V of h/8; three of ffn; no masks; 2 bytes.
  EXPECT_DOUBLE_EQ(layer_activations(model, layout, Recompute::selective).total(),
                   4096.0 * 2 * (4 * 8192 + 2 * 8192 + 2 * 1024 + 3 * 28672));
  EXPECT_DOUBLE_EQ(layer_activations(model, layout, Recompute::none).scores,
                   4096.0 * 4096 * 64 * 2);
}

TEST(model_memory, the_first_stage_keeps_a_micro_batch_for_each_stage) {
  ModelLayout layout = sequence_layout(1, 1, 4, 0, 1024, 1, 16);
  EXPECT_DOUBLE_EQ(micro_batches_in_flight(layout, 0), 4);
  EXPECT_DOUBLE_EQ(micro_batches_in_flight(layout, 3), 1);
  layout.virtual_stages = 2;  // 1 + (p − 1)/(p·v) of it
  EXPECT_DOUBLE_EQ(micro_batches_in_flight(layout, 0), 4 * (1 + 3.0 / (4 * 2)));
  layout.global_batch = 2;
  EXPECT_DOUBLE_EQ(micro_batches_in_flight(layout, 0), 2);
}

TEST(model_memory, a_rank_holds_its_share_of_weights) {
  const Model model = *preset_model("llama2-70b");
  const ModelLayout layout = sequence_layout(8, 8, 4, 1, 4096, 1, 128);
  const PipelineStage stage = make_stage(model, layout, 0);
  const ParameterCount count = count_parameters(model);
  const double matrices = static_cast<double>(count.attention + count.mlp) * 20 / 8;
  const double elements = matrices + 20.0 * 2 * 8192 + 32000.0 * 8192 / 8;
  EXPECT_DOUBLE_EQ(stage.elements, elements);
  const Memory memory = stage_memory(model, layout, stage);
  EXPECT_DOUBLE_EQ(memory.weights, 2 * elements);
  EXPECT_DOUBLE_EQ(memory.gradients, 4 * elements);
  EXPECT_DOUBLE_EQ(memory.optimizer, 12 * elements / 8);
  EXPECT_DOUBLE_EQ(memory.buffers, 0);
  EXPECT_DOUBLE_EQ(memory.total(),
                   memory.weights + memory.gradients + memory.optimizer + memory.activations);
}

TEST(model_memory, stages_and_tensor_ranks_hold_the_model_once) {
  const Model model = *preset_model("llama2-7b");
  const ModelLayout layout = sequence_layout(1, 4, 4, 0, 4096, 1, 4);
  double elements = 0;
  for (int stage = 0; stage < 4; ++stage) elements += make_stage(model, layout, stage).elements;
  // Norms are on every tensor rank.
  const double norms = (32 * 2 + 1) * 4096.0;
  EXPECT_DOUBLE_EQ(elements * 4, static_cast<double>(count_parameters(model).total) + 3 * norms);
}

TEST(model_memory, a_tied_head_is_held_twice_only_with_a_pipeline) {
  const Model model = *preset_model("gpt2-small");
  const double total = static_cast<double>(count_parameters(model).total);
  EXPECT_DOUBLE_EQ(make_stage(model, sequence_layout(1, 1, 1, 0, 1024, 1, 1), 0).elements, total);
  const ModelLayout two = sequence_layout(1, 1, 2, 0, 1024, 1, 2);
  EXPECT_DOUBLE_EQ(make_stage(model, two, 0).elements + make_stage(model, two, 1).elements,
                   total + 50257.0 * 768);
}

TEST(model_memory, of_a_replica_is_by_precision_sharding_and_moments) {
  Model shape;
  shape.layers = 2;
  shape.hidden = 64;
  shape.heads = 4;
  shape.ffn = 256;
  shape.vocab = 257;
  shape.max_positions = shape.context = 32;
  shape.tied = shape.bias = true;
  const auto model = complete(shape);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const auto parameters = static_cast<double>(count_parameters(*model).total);
  const auto plain = replica_memory(*model, {.ranks = 4, .micro_batch = 2, .seq = 32});
  EXPECT_DOUBLE_EQ(plain.weights, 4 * parameters);
  EXPECT_DOUBLE_EQ(plain.gradients, 4 * parameters);
  EXPECT_DOUBLE_EQ(plain.optimizer, 8 * parameters);
  const auto sharded = replica_memory(
      *model, {.ranks = 4, .zero = 1, .bf16 = true, .moments = 1, .micro_batch = 2, .seq = 32});
  EXPECT_DOUBLE_EQ(sharded.weights, 2 * parameters);
  EXPECT_DOUBLE_EQ(sharded.gradients, 4 * parameters);
  EXPECT_DOUBLE_EQ(sharded.optimizer, 8 * parameters / 4);
  EXPECT_LT(sharded.activations, plain.activations);
  EXPECT_EQ(sharded.buffers, 0);
  const auto all = replica_memory(*model, {.ranks = 4, .zero = 3, .micro_batch = 2, .seq = 32});
  EXPECT_DOUBLE_EQ(all.weights + all.gradients + all.optimizer, 16 * parameters / 4);
  EXPECT_GT(all.buffers, 0);
  EXPECT_GT(replica_memory(*model, {.micro_batch = 4, .seq = 32}).activations,
            1.9 * plain.activations);
}

TEST(model_memory, counts_what_comes_and_goes_in_backward) {
  Model model = *preset_model("gpt2-small");
  const double words = 4.0 * 50257 * 768;
  const ReplicaShape shape{.micro_batch = 1, .seq = 128};
  EXPECT_DOUBLE_EQ(replica_memory(model, shape).activations, 3 * words);  // three gradients of it
  model.tied = false;
  const double untied = replica_memory(model, shape).activations;
  EXPECT_GT(untied,
            words + 4.0 * 128 * 50257);  // the head's, and its output's; the layers' besides
  EXPECT_LT(untied, 1.9 * words);
}

// Chunks of three: the inputs of two, and one of them whole. The first three: their inputs, and the rest whole.
TEST(model_memory, of_a_replica_falls_by_what_is_computed_again) {
  using Kind = RecomputeShape::Kind;
  Model model = *preset_model("gpt2-small");
  model.layers = 6;
  model.vocab = 64;  // layers count, not what comes and goes at the ends
  const auto bytes = [&](RecomputeShape recompute) {
    return replica_memory(model, {.seq = 64, .recompute = recompute}).activations;
  };
  ModelLayout layout = sequence_layout(1, 1, 1, 0, 64, 1, 1);
  layout.precision.weight = 4;
  const LayerActivations layer = layer_activations(model, layout, Recompute::none);
  const double whole = layer.total(),
               input = layer_activations(model, layout, Recompute::full).total();
  const double all = bytes({});
  EXPECT_NEAR(all - bytes({Kind::selective}), 6 * layer.scores, 1);
  EXPECT_NEAR(all - bytes({Kind::uniform, 1}), 5 * whole - 6 * input, 1);
  EXPECT_NEAR(all - bytes({Kind::uniform, 3}), 3 * whole - 2 * input, 1);
  EXPECT_NEAR(all - bytes({Kind::block, 3}), 3 * whole - 3 * input, 1);
  EXPECT_NEAR(all - bytes({Kind::block, 6}), 5 * whole - 6 * input, 1);
}

TEST(model_memory, flops_of_all_ranks_are_the_models) {
  const Model model = *preset_model("llama2-13b");
  ModelLayout layout = sequence_layout(2, 4, 2, 1, 4096, 2, 4);
  layout.cp = 2;
  double forward = 0;
  for (int stage = 0; stage < 2; ++stage) forward += make_stage(model, layout, stage).forward_flops;
  // One micro-batch of 2 sequences, on tp × cp ranks.
  EXPECT_NEAR(forward * 8 / (2.0 * 4096 * token_flops(model, 4096).forward()), 1, 1e-12);
}

TEST(model_memory, recompute_repeats_layers_but_not_the_head) {
  const Model model = *preset_model("llama2-7b");
  ModelLayout layout = sequence_layout(1, 1, 1, 0, 4096, 1, 1);
  const TokenFlops flops = token_flops(model, 4096);
  layout.recompute = Recompute::none;
  EXPECT_DOUBLE_EQ(make_stage(model, layout, 0).recompute_flops, 0);
  layout.recompute = Recompute::selective;
  EXPECT_NEAR(make_stage(model, layout, 0).recompute_flops / (4096 * flops.scores), 1, 1e-12);
  layout.recompute = Recompute::full;
  EXPECT_NEAR(make_stage(model, layout, 0).recompute_flops / (4096 * (flops.linear + flops.scores)),
              1, 1e-12);
}

}  // namespace
}  // namespace tutti::plan
