// plan/memory.hpp - what a rank must hold, by kind.
#pragma once

#include "plan/pipeline_stage.hpp"

namespace tutti::plan {

// Bytes of activations that one layer keeps for backward, for one micro-batch.
struct LayerActivations {
  double by_sequence =
      0;  // norms' and linears' inputs, masks: split by tp only with sequence parallelism
  double by_tensor = 0;  // queries, keys, values, the MLP's inside: always split
  double scores = 0;     // softmax and its masks
  double total() const { return by_sequence + by_tensor + scores; }
};
// With `recompute` instead of the layout's own.
LayerActivations layer_activations(const Model& model, const ModelLayout& layout,
                                   Recompute recompute);

// Bytes a parameter takes on a rank: 18; 6 + 12/d; 2 + 16/d; 18/d for bf16 and ZeRO 0 … 3.
double bytes_per_parameter(const Precision& precision, int zero, int data_ranks);

// How many micro-batches' activations (of all its layers) a stage keeps at most.
double micro_batches_in_flight(const ModelLayout& layout, int stage);

struct Memory {
  int stage = 0;  // the fullest
  double weights = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;
  double buffers = 0;  // weights gathered for use, gradients before they are scattered
  double in_flight = 0;
  double total() const { return weights + gradients + optimizer + activations + buffers; }
};
Memory stage_memory(const Model& model, const ModelLayout& layout, const PipelineStage& stage);

// What is left of a device for the above: contexts, workspaces and fragmentation take the rest. A
// rule of thumb, not a measurement.
inline constexpr double kUsableMemory = 0.92;

}  // namespace tutti::plan
