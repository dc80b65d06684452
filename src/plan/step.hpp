// plan/step.hpp - a whole training step on a described cluster: compute, bubble, what each kind of
// communication adds, memory, and what that makes of the hardware.
//
//   step = m·T + bubble + exposed gradients + exposed weights + update
//   T      forward and backward of the slowest stage, with what tensor, context and pipeline
//          parallelism expose in it
//   bubble (ΣTᵢ − T)/v: (pp − 1)/(v·m) of m·T when stages are alike (plan/pipeline_time.hpp)
//
// Pure: same input, same plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/buckets.hpp"
#include "plan/memory.hpp"
#include "plan/traffic.hpp"

namespace tutti::plan {

// One stage's micro-batch.
struct StageTime {
  TwoWays compute;
  TensorTraffic tensor;
  ContextTraffic context;
  double forward_s() const {
    return compute.forward + tensor.exposed.forward + context.exposed.forward;
  }
  double backward_s() const {
    return compute.backward + tensor.exposed.backward + context.exposed.backward;
  }
};

struct StepPlan {
  Model model;
  ModelLayout layout;
  ParameterCount parameters;
  double rank_parameters = 0;  // of the fullest rank

  double model_flops = 0;     // of the step, all ranks, nothing computed twice
  double hardware_flops = 0;  // with what recompute repeats
  Memory memory;
  double memory_limit = 0;  // bytes that may be used
  bool fits() const { return memory.total() <= memory_limit; }

  StageTime stage;  // of the slowest
  PipelineTraffic pipeline;
  std::vector<Traffic> traffic;               // one line for each kind that travels
  std::vector<Transfer> reductions, gathers;  // buckets of the first stage
  std::size_t buckets = 0;

  // Seconds of the step, in parts that add up.
  double compute_s = 0;   // matrix products of all micro-batches
  double tensor_s = 0;    // exposed
  double context_s = 0;   // exposed
  double pipeline_s = 0;  // exposed messages
  double bubble_s = 0;
  double gradients_s = 0;  // exposed
  double weights_s = 0;    // exposed
  double update_s = 0;
  double step_s = 0;

  double mfu = 0;  // model FLOPs, of the peak of all ranks
  double hfu = 0;  // hardware FLOPs
  double tokens_per_s = 0;
  double break_even_tokens = 0;  // of a micro-batch: below, forward cannot hide the weights' gather
};

// `layout` is complete.
StepPlan plan_step(const Model& model, const ModelLayout& layout, Prices& prices);

// By how much weight gathers beside forward shorten the step; absent without a distributed
// optimizer.
struct GatherGain {
  double without_s = 0, with_s = 0;
  double gain = 0;       // without / with − 1
  double most_gain = 0;  // min(gather, first forward) / step without
  double gather_s = 0;
  std::int64_t global_batch_for_reported = 0;  // where the gain would be kReportedGain; 0: nowhere
};
// MindSpeed reports this for Llama-2-70B, end to end, on a cluster and a batch that it does not
// name.
inline constexpr double kReportedGain = 0.034;
std::optional<GatherGain> gather_gain(const StepPlan& plan, Prices& prices);

}  // namespace tutti::plan
