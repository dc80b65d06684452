// A planned step against the ratios and limits that can be derived by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "plan/step.hpp"
#include "plan/verdict.hpp"
#include "tutti/pipeline/simulate.hpp"

namespace tutti::plan {
namespace {

// One rank a host, 50 GB/s, no latency, F = 450 TFLOP/s: a ring's time is its bytes over B.
Cluster plain_cluster(double bandwidth = 50e9, double latency = 0) {
  Cluster cluster;
  cluster.name = "plain";
  cluster.fabric = Fabric::flat;
  cluster.within = cluster.between = {latency, 0, bandwidth};
  cluster.processor = {1e15, 0.45, 1e15, 1e18, 1e18};
  return cluster;
}

// Layers of 16h² and hardly anything else, so that P is what computes.
Model square_model(std::int64_t hidden = 8192, std::int64_t layers = 8) {
  return *complete({.name = "square",
                    .layers = layers,
                    .hidden = hidden,
                    .heads = 64,
                    .ffn = 4 * hidden,
                    .vocab = 64,
                    .glu = true});
}

ModelLayout plain_layout(int dp, int tp, int pp, int zero, int seq, int micro_batch,
                         int micro_batches) {
  ModelLayout layout;
  layout.dp = dp;
  layout.tp = tp;
  layout.pp = pp;
  layout.zero = zero;
  layout.seq = seq;
  layout.micro_batch = micro_batch;
  layout.global_batch = std::int64_t{dp} * micro_batch * micro_batches;
  layout.recompute = Recompute::none;
  return layout;
}

StepPlan plan_of(const Model& model, const ModelLayout& layout, const Cluster& cluster) {
  Prices prices(cluster);
  const auto whole = complete(layout, model, cluster);
  EXPECT_TRUE(whole.ok()) << whole.status().message();
  return plan_step(model, *whole, prices);
}

const Traffic& line(const StepPlan& plan, const std::string& kind) {
  for (const Traffic& each : plan.traffic)
    if (each.kind == kind) return each;
  ADD_FAILURE() << "no " << kind;
  return plan.traffic.front();
}

constexpr double kF = 450e12;
constexpr double kB = 50e9;

TEST(model_step, break_even_of_an_h100_is_about_8900_tokens) {
  const Cluster cluster = *preset_cluster("h100-ib400");
  // One data-parallel rank a host, so many that q is almost 1.
  const StepPlan plan =
      plan_of(*preset_model("llama2-70b"), plain_layout(512, 8, 1, 1, 4096, 1, 1), cluster);
  EXPECT_NEAR(plan.break_even_tokens, 8900, 8900 * 0.02);
}

TEST(model_step, flops_of_a_step_by_hand) {
  const StepPlan plan =
      plan_of(*preset_model("llama2-7b"), plain_layout(4, 1, 1, 0, 4096, 1, 2), plain_cluster());
  const double h = 4096, s = 4096, tokens = 8 * s;
  const double layer = 2 * (4 * h * h + 3 * h * 11008) + 4 * s * h / 2;
  EXPECT_DOUBLE_EQ(plan.model_flops, 3 * tokens * (32 * layer + 2 * 32000 * h));
  EXPECT_DOUBLE_EQ(plan.hardware_flops, plan.model_flops);
}

TEST(model_step, data_parallel_ratio_has_no_parameters_in_it) {
  const int n = 16, tokens = 64;
  const double q = 15.0 / 16;
  for (const std::int64_t hidden : {4096, 16384}) {
    const StepPlan plan =
        plan_of(square_model(hidden), plain_layout(n, 1, 1, 0, tokens, 1, 1), plain_cluster());
    EXPECT_NEAR(line(plan, "gradients").ratio(), 4.0 / (2 * tokens) * q * kF / kB,
                0.01 * line(plan, "gradients").ratio());
  }
}

TEST(model_step, distributed_optimizer_ratios) {
  const int n = 8, tokens = 64;
  const double one = 7.0 / 8 * kF / kB / tokens;  // fp32 gradients, bf16 weights: both (1/T)·q·F/B
  const StepPlan plan =
      plan_of(square_model(), plain_layout(n, 1, 1, 1, tokens, 1, 1), plain_cluster());
  EXPECT_NEAR(line(plan, "gradients").ratio(), one, 0.01 * one);
  EXPECT_NEAR(line(plan, "weights").ratio(), one, 0.01 * one);
}

TEST(model_step, zero_3_ratios_and_its_volume_of_every_micro_batch) {
  const int n = 8, tokens = 64, batches = 3;
  const double one = 7.0 / 8 * kF / kB / tokens;
  const Model model = square_model();
  const StepPlan plan =
      plan_of(model, plain_layout(n, 1, 1, 3, tokens, 1, batches), plain_cluster());
  EXPECT_NEAR(line(plan, "weights").ratio(), one, 0.01 * one);
  EXPECT_NEAR(line(plan, "gradients").ratio(), 1.5 * one, 0.015 * one);
  const double elements = static_cast<double>(count_parameters(model).total);
  EXPECT_NEAR(line(plan, "weights").rank_bytes + line(plan, "gradients").rank_bytes,
              batches * 7.0 / 8 * elements * (2 + 2 + 4), 1);
}

TEST(model_step, zero_1_moves_each_weight_and_gradient_once_a_step) {
  const Model model = square_model();
  const double elements = static_cast<double>(count_parameters(model).total);
  for (const int batches : {1, 5}) {
    const StepPlan plan = plan_of(model, plain_layout(8, 1, 1, 1, 64, 1, batches), plain_cluster());
    EXPECT_NEAR(line(plan, "weights").rank_bytes, 7.0 / 8 * elements * 2, 1);
    EXPECT_NEAR(line(plan, "gradients").rank_bytes, 7.0 / 8 * elements * 4, 1);
  }
}

TEST(model_step, tensor_parallel_has_ten_collectives_a_layer) {
  const Model model = square_model();
  const StepPlan plan = plan_of(model, plain_layout(1, 8, 1, 0, 4096, 1, 2), plain_cluster());
  // And five at the ends: two at the embedding, three at the head; for each micro-batch.
  EXPECT_DOUBLE_EQ(line(plan, "tensor").calls, 2 * (8 * 10 + 5));
  EXPECT_DOUBLE_EQ(line(plan, "tensor").call_bytes, 4096.0 * 8192 * 2);
  // s·m·h·q elements of a rank in each.
  EXPECT_DOUBLE_EQ(line(plan, "tensor").rank_bytes, 2 * 85 * 4096.0 * 8192 * 2 * 7 / 8);
  EXPECT_DOUBLE_EQ(line(plan, "tensor").exposed_s, line(plan, "tensor").seconds);
}

TEST(model_step, tensor_parallel_collective_before_a_linear_has_the_known_ratio) {
  const Cluster cluster = plain_cluster();
  const Model model = square_model();
  const ModelLayout layout = *complete(plain_layout(1, 8, 1, 0, 4096, 1, 1), model, cluster);
  Prices prices(cluster);
  const TensorTraffic traffic = tensor_traffic(model, layout, make_stage(model, layout, 0), prices);
  const double collective = prices.collective(Collective::all_gather, {8, 1}, traffic.call_bytes);
  const double square = 2.0 * 4096 * 8192 * 8192 / 8 / kF;  // an h×h linear
  EXPECT_NEAR(collective / square, 2.0 * 7 / (2 * 8192) * kF / kB, 1e-9);
}

TEST(model_step, tensor_parallel_overlap_never_costs_more) {
  ModelLayout layout = plain_layout(1, 8, 1, 0, 4096, 1, 1);
  const StepPlan without = plan_of(square_model(), layout, plain_cluster(450e9));
  layout.overlap_tp = true;
  const StepPlan with = plan_of(square_model(), layout, plain_cluster(450e9));
  EXPECT_LT(with.tensor_s, without.tensor_s);
  EXPECT_DOUBLE_EQ(line(with, "tensor").seconds, line(without, "tensor").seconds);
}

TEST(model_step, without_sequence_parallelism_four_all_reduces_a_layer) {
  ModelLayout layout = plain_layout(1, 8, 1, 0, 4096, 1, 1);
  layout.sequence_parallel = false;
  const StepPlan plan = plan_of(square_model(), layout, plain_cluster());
  EXPECT_DOUBLE_EQ(line(plan, "tensor").calls, 8 * 4 + 1 + 1);
}

TEST(model_step, pipeline_message_has_the_known_ratio) {
  const Model model = square_model();
  const StepPlan plan = plan_of(model, plain_layout(1, 1, 4, 0, 64, 2, 8), plain_cluster());
  // b·h·F/(2·P_stage·B): a message against the forward of the stage.
  const double stage = 16.0 * 8192 * 8192 * 2;
  EXPECT_NEAR(plan.pipeline.message_s / plan.stage.compute.forward,
              2.0 * 8192 * kF / (2 * stage * kB), 0.01 * 2.0 * 8192 * kF / (2 * stage * kB));
}

TEST(model_step, sequence_parallelism_splits_the_pipelines_message) {
  const Model model = square_model();
  ModelLayout layout = plain_layout(1, 8, 2, 0, 4096, 1, 4);
  const StepPlan split = plan_of(model, layout, plain_cluster());
  layout.sequence_parallel = false;
  const StepPlan whole = plan_of(model, layout, plain_cluster());
  EXPECT_DOUBLE_EQ(whole.pipeline.message_bytes, 8 * split.pipeline.message_bytes);
}

TEST(model_step, context_parallel_ring_has_the_known_ratio) {
  const Model model = *preset_model("llama2-70b");  // g = 1/8
  ModelLayout layout = plain_layout(1, 1, 1, 0, 32768, 1, 1);
  layout.cp = 4;
  const StepPlan plan = plan_of(model, layout, plain_cluster());
  const double expected = 2 * (1.0 / 8 * 2 * 4 * kF / (2 * 32768 * kB));  // twice, because causal
  const Traffic& ring = line(plan, "context");
  // A layer has 3 hops forward and 7 backward; the last one comes when nothing is left to compute.
  EXPECT_NEAR(ring.ratio(), expected * 10 / 9, 1e-9);
  EXPECT_DOUBLE_EQ(ring.calls, 80 * 10);
  EXPECT_DOUBLE_EQ(ring.call_bytes, 2 * (32768.0 / 4) * 1024 * 2);
  EXPECT_NEAR(ring.exposed_s / ring.seconds, 0.1, 1e-9);  // 0.27: all others are hidden
  const StepPlan slow = plan_of(model, layout, plain_cluster(5e9));
  EXPECT_NEAR(line(slow, "context").exposed_s / line(slow, "context").seconds,
              1 - 1.1 / (10 * expected), 1e-9);
}

// Two hosts of 4 ranks with one way out each.
Cluster two_hosts() {
  Cluster cluster = *preset_cluster("cpu-ethernet-1g");
  cluster.max_ranks = 8;
  return cluster;
}

TEST(model_step, a_ring_that_leaves_its_host_is_as_slow_as_the_way_out) {
  const Model model = *preset_model("gpt2-small");
  ModelLayout layout = plain_layout(1, 1, 1, 0, 1024, 1, 1);
  layout.cp = 4;
  const double near = line(plan_of(model, layout, two_hosts()), "context").seconds;
  layout.cp = 8;
  const Traffic far = line(plan_of(model, layout, two_hosts()), "context");
  EXPECT_GT(far.seconds, 10 * near);
  EXPECT_GT(far.exposed_s, 0.5 * far.seconds);
}

TEST(model_step, data_groups_of_one_host_share_its_way_out) {
  const Model model = *preset_model("gpt2-small");
  const auto wire_s = [&](int dp, int tp) {
    return line(plan_of(model, plain_layout(dp, tp, 1, 0, 1024, 1, 1), two_hosts()), "gradients")
        .seconds;
  };
  // A quarter of the gradients for each of 4 groups at once, or all of them for one: the same bytes leave a host.
  EXPECT_NEAR(wire_s(2, 4) / wire_s(8, 1), 1, 0.25);
}

TEST(model_step, messages_between_stages_of_a_host_do_not_wait_for_the_network) {
  const Model model = *preset_model("gpt2-small");
  const StepPlan plan = plan_of(model, plain_layout(2, 1, 4, 0, 1024, 1, 8), two_hosts());
  ASSERT_EQ(plan.pipeline.boundaries_s.size(), 3U);
  EXPECT_LT(plan.pipeline.boundaries_s[0], 0.1 * plan.pipeline.boundaries_s[1]);
  EXPECT_DOUBLE_EQ(plan.pipeline.boundaries_s[0], plan.pipeline.boundaries_s[2]);
  EXPECT_DOUBLE_EQ(plan.pipeline.message_s, plan.pipeline.boundaries_s[1]);
}

TEST(model_step, gradients_in_rank_order_have_fewer_algorithms_to_choose_from) {
  const Model model = *preset_model("gpt2-small");
  ModelLayout layout = plain_layout(8, 1, 1, 1, 1024, 1, 1);
  const double any = line(plan_of(model, layout, two_hosts()), "gradients").seconds;
  layout.gradient_order = ReductionOrder::rank;
  EXPECT_GT(line(plan_of(model, layout, two_hosts()), "gradients").seconds, any);
}

TEST(model_step, bubble_is_pp_minus_1_over_v_times_micro_batches) {
  const Model model = square_model();
  for (const int batches : {4, 16, 64})
    for (const int v : {1, 2}) {
      ModelLayout layout = plain_layout(1, 1, 4, 0, 64, 1, batches);
      layout.virtual_stages = v;
      const StepPlan plan = plan_of(model, layout, plain_cluster(1e15));
      EXPECT_NEAR(plan.bubble_s / plan.compute_s, 3.0 / (v * batches), 1e-3);
    }
}

// The arithmetic is that of the schedules themselves, played in virtual time.
TEST(model_step, a_pipeline_takes_as_long_as_its_schedule_does) {
  Model model = square_model();
  model.vocab = 1;  // stages are alike
  for (const int v : {1, 2})
    for (const int batches : {4, 8, 40}) {
      ModelLayout layout = plain_layout(1, 1, 4, 0, 4096, 1, batches);
      layout.virtual_stages = v;
      const StepPlan plan = plan_of(model, layout, plain_cluster());
      const auto programs = pipeline::build_pipeline(layout.schedule(), layout.pipeline_shape());
      ASSERT_TRUE(programs.ok());
      const TwoWays& each = plan.stage.compute;
      const auto timeline = pipeline::simulate_pipeline(
          *programs, {{{each.forward / v, each.backward / v / 2, each.backward / v / 2}},
                      plan.pipeline.message_s});
      ASSERT_TRUE(timeline.ok());
      ASSERT_GT(plan.pipeline_s, 0);
      EXPECT_NEAR((plan.compute_s + plan.bubble_s + plan.pipeline_s) / timeline->step_s, 1, 1e-5);
    }
}

TEST(model_step, parts_add_up_to_the_step) {
  const StepPlan plan = plan_of(*preset_model("llama2-70b"), plain_layout(8, 8, 4, 1, 4096, 1, 16),
                                *preset_cluster("h100-ib400"));
  double sum = 0;
  for (int i = 0; i < kConstraints; ++i) sum += seconds_of(plan, static_cast<Constraint>(i));
  EXPECT_NEAR(sum, plan.step_s, 1e-9 * plan.step_s);
  EXPECT_LT(plan.mfu, 0.45);
  EXPECT_LE(plan.mfu, plan.hfu);
}

TEST(model_step, exposed_is_nothing_or_all_in_the_limits) {
  const Model model = square_model();
  const ModelLayout layout = plain_layout(8, 1, 1, 1, 64, 1, 1);
  const StepPlan quick = plan_of(model, layout, plain_cluster(1e18));
  EXPECT_LT(quick.gradients_s + quick.weights_s, 1e-6 * quick.step_s);
  // So slow that compute is nothing: all but what it hides, which is its own length at most.
  const StepPlan slow = plan_of(model, layout, plain_cluster(1e6));
  EXPECT_NEAR(slow.gradients_s / line(slow, "gradients").seconds, 1, 1e-3);
  EXPECT_NEAR(slow.weights_s / line(slow, "weights").seconds, 1, 1e-3);
}

TEST(model_step, accumulation_does_not_hide_more) {
  const Model model = square_model();
  const StepPlan one = plan_of(model, plain_layout(8, 1, 1, 1, 64, 1, 1), plain_cluster());
  const StepPlan many = plan_of(model, plain_layout(8, 1, 1, 1, 64, 1, 32), plain_cluster());
  EXPECT_DOUBLE_EQ(one.gradients_s, many.gradients_s);
  EXPECT_GT(one.gradients_s / one.step_s, many.gradients_s / many.step_s);
}

TEST(model_step, a_better_network_or_more_overlap_never_costs) {
  const Model model = *preset_model("llama2-7b");
  for (const int zero : {0, 1, 2, 3})
    for (const int tp : {1, 4}) {
      double before = 1e30;
      for (const double bandwidth : {1e9, 1e10, 1e11, 1e12}) {
        ModelLayout layout = plain_layout(8, tp, 1, zero, 4096, 1, 4);
        const StepPlan plan = plan_of(model, layout, plain_cluster(bandwidth, 1e-6));
        EXPECT_LE(plan.step_s, before * (1 + 1e-12));
        before = plan.step_s;
        layout.overlap_grad_reduce = layout.overlap_param_gather = false;
        EXPECT_GE(plan_of(model, layout, plain_cluster(bandwidth, 1e-6)).step_s,
                  plan.step_s * (1 - 1e-12));
      }
    }
}

TEST(model_step, gather_gain_is_within_its_bound) {
  const Cluster cluster = *preset_cluster("h100-ib400");
  Prices prices(cluster);
  for (const int batches : {1, 8, 128}) {
    const StepPlan plan =
        plan_of(*preset_model("llama2-70b"), plain_layout(8, 8, 4, 1, 4096, 1, batches), cluster);
    const auto gain = gather_gain(plan, prices);
    ASSERT_TRUE(gain.has_value());
    EXPECT_GT(gain->gain, 0);
    EXPECT_LE(1 - gain->with_s / gain->without_s, gain->most_gain + 1e-12);
  }
  EXPECT_FALSE(
      gather_gain(plan_of(square_model(), plain_layout(8, 1, 1, 0, 64, 1, 1), cluster), prices)
          .has_value());
}

TEST(model_step, gain_at_the_batch_that_is_named_is_the_reported_one) {
  const Cluster cluster = *preset_cluster("h100-ib400");
  Prices prices(cluster);
  const auto gain_of = [&](int batches) {
    return *gather_gain(
        plan_of(*preset_model("llama2-70b"), plain_layout(8, 8, 4, 1, 4096, 1, batches), cluster),
        prices);
  };
  const auto batch = gain_of(128).global_batch_for_reported;
  ASSERT_GT(batch, 0);
  EXPECT_NEAR(gain_of(static_cast<int>(batch / 8)).gain, kReportedGain, 0.004);
}

TEST(model_layout, contradictions_are_named) {
  const Cluster cluster = *preset_cluster("h100-ib400");
  const Model model = *preset_model("llama2-70b");
  const auto message = [&](ModelLayout layout, const Cluster& where) {
    return complete(layout, model, where).status().message();
  };
  const std::pair<ModelLayout, const char*> cases[] = {
      {plain_layout(1, 3, 1, 0, 4096, 1, 1), "tp 3 does not divide the 64 heads"},
      {plain_layout(1, 16, 1, 0, 4096, 1, 1), "tp 16 does not divide the 8 kv_heads"},
      {plain_layout(1, 1, 3, 0, 4096, 1, 1), "pp 3 does not divide the 80 layers"},
      {plain_layout(1, 1, 1, 4, 4096, 1, 1), "zero must be 0, 1, 2 or 3"},
      {plain_layout(0, 1, 1, 0, 4096, 1, 1), "dp must be at least 1"}};
  for (const auto& [layout, text] : cases)
    EXPECT_NE(message(layout, cluster).find(text), std::string::npos) << message(layout, cluster);
  ModelLayout layout = plain_layout(8, 1, 1, 0, 4096, 2, 1);
  layout.global_batch = 24;
  EXPECT_NE(message(layout, cluster).find("global_batch 24 is not a multiple of 16"),
            std::string::npos);
  Cluster small = cluster;
  small.max_ranks = 4;
  EXPECT_NE(message(plain_layout(8, 1, 1, 0, 4096, 1, 1), small).find("has 4"), std::string::npos);
  small.processor.peak_flops = 0;
  EXPECT_NE(message(plain_layout(2, 1, 1, 0, 4096, 1, 1), small).find("peak_flops"),
            std::string::npos);
}

TEST(verdict, names_what_binds_and_what_to_change) {
  const Cluster cluster = *preset_cluster("h100-ib400");
  const Model model = *preset_model("llama2-70b");
  const auto line_of = [&](const ModelLayout& layout) {
    return verdict(plan_of(model, layout, cluster), cluster);
  };
  EXPECT_EQ(line_of(plain_layout(8, 1, 1, 0, 4096, 1, 1)).rfind("memory binds", 0), 0U);
  EXPECT_EQ(line_of(plain_layout(1, 8, 16, 0, 4096, 1, 8)).rfind("bubble binds", 0), 0U);
  EXPECT_EQ(line_of(plain_layout(8, 8, 4, 1, 4096, 1, 128)).rfind("tensor binds", 0), 0U);
  ModelLayout fewer = plain_layout(8, 8, 4, 1, 4096, 1, 4);
  fewer.overlap_grad_reduce = fewer.overlap_tp = true;
  EXPECT_NE(line_of(fewer).find("; "), std::string::npos);
}

}  // namespace
}  // namespace tutti::plan
