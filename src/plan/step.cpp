#include "plan/step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/pipeline_time.hpp"

namespace tutti::plan {
namespace {

// Stages between the first and the last are alike: three are enough.
struct Stages {
  PipelineStage first, middle, last;
  int middles = 0;
};

Stages make_stages(const Model& model, const ModelLayout& layout) {
  Stages stages;
  stages.first = make_stage(model, layout, 0);
  if (layout.pp == 1) return stages;
  stages.last = make_stage(model, layout, layout.pp - 1);
  stages.middles = layout.pp - 2;
  if (stages.middles > 0) stages.middle = make_stage(model, layout, 1);
  return stages;
}

StageTime time_stage(const Model& model, const ModelLayout& layout, const PipelineStage& stage,
                     Prices& prices) {
  StageTime time;
  time.compute = {stage.forward_flops / prices.flops_per_s(),
                  stage.backward_flops() / prices.flops_per_s()};
  time.tensor = tensor_traffic(model, layout, stage, prices);
  time.context = context_traffic(model, layout, stage, prices);
  return time;
}

double whole(const StageTime& time) { return time.forward_s() + time.backward_s(); }

// Fills the parts of the step that repeat with every micro-batch; returns the first stage's time.
StageTime time_pipeline(const Stages& stages, Prices& prices, StepPlan& plan) {
  const ModelLayout& layout = plan.layout;
  const auto m = static_cast<double>(layout.micro_batches());
  std::vector<TwoWays> ways;
  const auto add = [&](const PipelineStage& stage, int count) {
    const StageTime time = time_stage(plan.model, layout, stage, prices);
    ways.insert(ways.end(), static_cast<std::size_t>(count), {time.forward_s(), time.backward_s()});
    if (whole(time) > whole(plan.stage)) plan.stage = time;
    return time;
  };
  const StageTime first = add(stages.first, 1);
  if (stages.middles > 0) add(stages.middle, stages.middles);
  if (layout.pp > 1) add(stages.last, 1);
  plan.compute_s = m * plan.stage.compute.both();
  plan.tensor_s = m * plan.stage.tensor.exposed.both();
  plan.context_s = m * plan.stage.context.exposed.both();
  if (layout.pp == 1) return first;
  plan.pipeline = pipeline_traffic(plan.model, layout, prices);
  const PipelineTime time = pipeline_time(layout, ways, plan.pipeline);
  plan.bubble_s = time.bubble_s;
  plan.pipeline_s = time.messages_s;
  return first;
}

// Adam reads gradient and state, writes state and weight.
double update_seconds(double elements, const ModelLayout& layout, const Cluster& cluster) {
  const Precision& precision = layout.precision;
  const double own = elements / (layout.zero >= 1 ? layout.data_ranks() : 1);
  const double bytes = own * (precision.gradient + 2 * precision.optimizer + precision.weight);
  return cluster.processor.memory_bandwidth > 0 ? bytes / cluster.processor.memory_bandwidth : 0;
}

double sum_of(const std::vector<Transfer>& transfers) {
  double sum = 0;
  for (const Transfer& transfer : transfers) sum += transfer.seconds;
  return sum;
}

// Share of an array that a ring's rank sends.
double ring_share(int ranks) { return static_cast<double>(ranks - 1) / ranks; }

void add_weights(const StageTime& first, const PipelineStage& stage, StepPlan& plan) {
  const ModelLayout& layout = plan.layout;
  const Hidden hidden = hide_gathers(first.forward_s(), plan.gathers);
  plan.weights_s = layout.overlap_param_gather ? hidden.exposed_s : hidden.wire_s;
  const double bytes = stage.elements * layout.precision.weight;
  const double calls = static_cast<double>(plan.gathers.size());
  plan.traffic.push_back({"weights", "all_gather a bucket", layout.data_ranks(), calls,
                          bytes / calls, bytes * ring_share(layout.data_ranks()), hidden.wire_s,
                          "first forward", first.forward_s(), plan.weights_s});
}

// ZeRO 0 … 2: gradients beside the last backward. ZeRO-2 keeps no whole gradients: every
// micro-batch's are reduced, the earlier ones beside the micro-batch that follows.
void add_gradients(const StageTime& first, const PipelineStage& stage, StepPlan& plan) {
  const ModelLayout& layout = plan.layout;
  const Hidden hidden = hide_reductions(first.backward_s(), plan.reductions);
  const double rounds = layout.zero == 2 ? static_cast<double>(layout.micro_batches()) : 1;
  plan.gradients_s = layout.overlap_grad_reduce ? hidden.exposed_s : hidden.wire_s;
  const double earlier =
      layout.overlap_grad_reduce ? std::max(0.0, hidden.wire_s - whole(first)) : hidden.wire_s;
  plan.gradients_s += (rounds - 1) * earlier;
  const double bytes = stage.elements * layout.sent_gradient_bytes();
  const double calls = static_cast<double>(plan.reductions.size());
  // What is gathered behind a sum is as wide as it is kept.
  const double gathered =
      layout.zero == 0 ? layout.precision.gradient / layout.sent_gradient_bytes() : 0;
  const double share = ring_share(layout.data_ranks()) * (1 + gathered);
  plan.traffic.push_back(
      {"gradients", layout.zero == 0 ? "all_reduce a bucket" : "reduce_scatter a bucket",
       layout.data_ranks(), rounds * calls, bytes / calls, rounds * bytes * share,
       rounds * hidden.wire_s, rounds > 1 ? "backward" : "last backward",
       rounds * first.backward_s(), plan.gradients_s});
}

void add_data_parallel(const StageTime& first, const PipelineStage& stage, Prices& prices,
                       StepPlan& plan) {
  const ModelLayout& layout = plan.layout;
  if (layout.data_ranks() == 1) return;
  const auto buckets =
      cut_buckets(stage, layout.gradient_bucket_bytes() / layout.precision.gradient);
  plan.buckets = buckets.size();
  plan.reductions = reduction_transfers(stage, buckets, layout, first.backward_s(), prices);
  add_gradients(first, stage, plan);
  if (layout.zero == 0) return;
  plan.gathers = gather_transfers(stage, buckets, layout, first.forward_s(), prices);
  add_weights(first, stage, plan);
}

// ZeRO-3: weights before each layer's forward and backward, gradients behind it, every micro-batch.
void add_gathered_layers(const StageTime& first, const PipelineStage& stage, Prices& prices,
                         StepPlan& plan) {
  const ModelLayout& layout = plan.layout;
  if (layout.data_ranks() == 1) return;
  const auto m = static_cast<double>(layout.micro_batches());
  const double layers = stage.layers;
  const double elements = stage.elements / layers;  // the ends' weights travel with them
  const double weight_bytes = elements * layout.precision.weight;
  const double gradient_bytes = elements * layout.sent_gradient_bytes();
  const GroupSeats group = layout.data_group();
  const double gather = prices.collective(Collective::all_gather, group, weight_bytes);
  const double scatter =
      prices.collective(Collective::reduce_scatter, group, gradient_bytes, layout.gradient_order);
  const double share = ring_share(group.ranks);
  const auto with = [&](bool overlap) {
    return hide_gathered_layers(stage.layers, first.forward_s(), first.backward_s(), gather,
                                scatter, overlap);
  };
  plan.weights_s = m * with(layout.overlap_param_gather).forward_exposed_s;
  plan.gradients_s = m * with(layout.overlap_grad_reduce).backward_exposed_s;
  plan.buckets = static_cast<std::size_t>(stage.layers);
  plan.traffic.push_back({"weights", "all_gather a layer, forward", group.ranks, m * layers,
                          weight_bytes, m * layers * weight_bytes * share, m * layers * gather,
                          "forward", m * first.forward_s(), plan.weights_s});
  plan.traffic.push_back(
      {"gradients", "all_gather + reduce_scatter a layer, backward", group.ranks, 2 * m * layers,
       weight_bytes + gradient_bytes, m * layers * (weight_bytes + gradient_bytes) * share,
       m * layers * (gather + scatter), "backward", m * first.backward_s(), plan.gradients_s});
}

void add_inner_traffic(StepPlan& plan) {
  const ModelLayout& layout = plan.layout;
  const auto m = static_cast<double>(layout.micro_batches());
  if (layout.tp > 1) {
    const TensorTraffic& each = plan.stage.tensor;
    const double share = ring_share(layout.tp) * (layout.sequence_parallel ? 1 : 2);
    plan.traffic.push_back(
        {"tensor", layout.sequence_parallel ? "all_gather, reduce_scatter" : "all_reduce",
         layout.tp, m * each.calls, each.call_bytes, m * each.calls * each.call_bytes * share,
         m * each.seconds.both(),
         layout.overlap_tp ? "its matrix products" : "(its matrix products: off)",
         m * each.hider.both(), plan.tensor_s});
  }
  if (layout.cp > 1) {
    const ContextTraffic& each = plan.stage.context;
    const double rounds = layout.recompute == Recompute::full ? 4 : 3;
    const double hops = m * (plan.model.layers / layout.pp) * (rounds * each.hops + 1);
    plan.traffic.push_back({"context", "keys and values round a ring", layout.cp, hops,
                            each.hop_bytes, hops * each.hop_bytes, m * each.seconds.both(),
                            "attention of a block", m * each.hider.both(), plan.context_s});
  }
  if (layout.pp > 1) {
    const PipelineTraffic& each = plan.pipeline;
    plan.traffic.push_back(
        {"pipeline", "send to the next stage, and back", layout.pp, each.calls, each.message_bytes,
         each.calls * each.message_bytes, each.calls * each.message_s,
         layout.virtual_stages > 1 ? "another piece of the stage" : "(the stage's compute: v 1)",
         plan.compute_s, plan.pipeline_s});
  }
}

// A tied head on another stage than its embedding: their gradients are summed when both are there.
void add_tied_embedding(Prices& prices, StepPlan& plan) {
  const ModelLayout& layout = plan.layout;
  if (!plan.model.tied || layout.pp == 1) return;
  const double bytes = static_cast<double>(plan.model.vocab * plan.model.hidden) / layout.tp *
                       layout.precision.gradient / (layout.zero >= 2 ? layout.data_ranks() : 1);
  const GroupSeats ends{2, layout.tp * layout.cp * layout.dp * (layout.pp - 1)};
  const double seconds = prices.collective(Collective::all_reduce, ends, bytes);
  plan.gradients_s += seconds;
  plan.traffic.push_back({"tied head", "all_reduce, first and last stage", 2, 1, bytes, bytes,
                          seconds, "nothing", 0, seconds});
}

void count_flops(StepPlan& plan) {
  const ModelLayout& layout = plan.layout;
  const TokenFlops token = token_flops(plan.model, layout.seq);
  const double tokens = static_cast<double>(layout.global_batch) * layout.seq;
  plan.model_flops = 3 * tokens * token.forward();
  plan.hardware_flops = plan.model_flops;
  if (layout.recompute == Recompute::selective) plan.hardware_flops += tokens * token.scores;
  if (layout.recompute == Recompute::full)
    plan.hardware_flops += tokens * (token.linear + token.scores);
}

void weigh(const Stages& stages, const Cluster& cluster, StepPlan& plan) {
  plan.memory = stage_memory(plan.model, plan.layout, stages.first);
  plan.rank_parameters = stages.first.elements;
  if (plan.layout.pp > 1) {
    const Memory last = stage_memory(plan.model, plan.layout, stages.last);
    if (last.total() > plan.memory.total()) plan.memory = last;
    plan.rank_parameters = std::max(plan.rank_parameters, stages.last.elements);
  }
  plan.memory_limit = cluster.processor.memory_bytes * kUsableMemory;
}

void judge_speed(const Cluster& cluster, Prices& prices, StepPlan& plan) {
  const ModelLayout& layout = plan.layout;
  plan.step_s = plan.compute_s + plan.tensor_s + plan.context_s + plan.pipeline_s + plan.bubble_s +
                plan.gradients_s + plan.weights_s + plan.update_s;
  const double peak = cluster.processor.peak_flops * layout.ranks();
  plan.mfu = plan.model_flops / plan.step_s / peak;
  plan.hfu = plan.hardware_flops / plan.step_s / peak;
  plan.tokens_per_s = static_cast<double>(layout.global_batch) * layout.seq / plan.step_s;
  // T = (b/2)·q·F/B, with the bus bandwidth that large messages reach in this group.
  const double bytes = 1e9;
  const double gather = prices.collective(Collective::all_gather, layout.data_group(), bytes);
  plan.break_even_tokens = layout.precision.weight / 2 * prices.flops_per_s() * gather / bytes;
}

}  // namespace

StepPlan plan_step(const Model& model, const ModelLayout& layout, Prices& prices) {
  StepPlan plan;
  plan.model = model;
  plan.layout = layout;
  plan.parameters = count_parameters(model);
  const Stages stages = make_stages(model, layout);
  count_flops(plan);
  weigh(stages, prices.cluster(), plan);
  const StageTime first = time_pipeline(stages, prices, plan);
  add_inner_traffic(plan);
  if (layout.zero == 3)
    add_gathered_layers(first, stages.first, prices, plan);
  else
    add_data_parallel(first, stages.first, prices, plan);
  add_tied_embedding(prices, plan);
  plan.update_s = update_seconds(plan.rank_parameters, layout, prices.cluster());
  judge_speed(prices.cluster(), prices, plan);
  return plan;
}

std::optional<GatherGain> gather_gain(const StepPlan& plan, Prices& prices) {
  if (plan.layout.zero == 0 || plan.layout.zero == 3 || plan.layout.data_ranks() == 1)
    return std::nullopt;
  const auto with_overlap = [&](bool overlap) {
    ModelLayout layout = plan.layout;
    layout.overlap_param_gather = overlap;
    return plan_step(plan.model, layout, prices);
  };
  const StepPlan with = with_overlap(true);
  const StepPlan without = with_overlap(false);
  GatherGain result;
  result.with_s = with.step_s;
  result.without_s = without.step_s;
  result.gain = result.without_s / result.with_s - 1;
  result.gather_s = sum_of(with.gathers);
  result.most_gain = std::min(result.gather_s, with.stage.forward_s()) / result.without_s;
  // The saved time does not depend on the number of micro-batches, the step does, linearly.
  const double saved = result.without_s - result.with_s;
  const double each =
      with.step_s - with.bubble_s - with.gradients_s - with.weights_s - with.update_s;
  const double fixed = with.step_s - each;
  const double batches =
      (saved / kReportedGain - fixed) / (each / static_cast<double>(plan.layout.micro_batches()));
  if (batches >= 0.5)
    result.global_batch_for_reported =
        std::llround(batches) * plan.layout.dp * plan.layout.micro_batch;
  return result;
}

}  // namespace tutti::plan
