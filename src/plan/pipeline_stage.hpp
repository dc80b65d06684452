// plan/pipeline_stage.hpp - what one rank of a pipeline stage holds and computes, tensor by tensor.
#pragma once

#include <vector>

#include "plan/model_layout.hpp"

namespace tutti::plan {

// A piece of a rank's forward, in its order. Attention scores are one without weights.
struct ModelPart {
  enum class Role : std::uint8_t {
    embedding,
    norm,
    qkv,
    scores,
    projection,
    into_mlp,
    out_of_mlp,
    final_norm,
    head,
  };
  Role role = Role::norm;
  double elements = 0;  // of weights, on this rank
  double flops = 0;     // of forward, for a micro-batch, on this rank
  bool in_layer() const {
    return role != Role::embedding && role != Role::final_norm && role != Role::head;
  }
};

// One layer of a rank. Weights of norms, and biases behind a split sum, are on every tensor rank.
std::vector<ModelPart> layer_parts(const Model& model, const ModelLayout& layout);

struct PipelineStage {
  int index = 0;
  int layers = 0;
  std::vector<ModelPart> parts;  // forward order
  double elements = 0;           // sum
  double forward_flops = 0;      // for a micro-batch
  double recompute_flops = 0;    // forward that backward computes again
  double backward_flops() const { return 2 * forward_flops + recompute_flops; }
};
PipelineStage make_stage(const Model& model, const ModelLayout& layout, int index);

}  // namespace tutti::plan
