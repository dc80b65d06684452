// plan/traffic.hpp - what travels in a step, for each kind of parallelism: how much, how long, what
// compute can hide it, and what stays exposed.
#pragma once

#include <string>
#include <vector>

#include "plan/pipeline_stage.hpp"
#include "plan/prices.hpp"

namespace tutti::plan {

// Of the busiest rank, in one step.
struct Traffic {
  std::string kind;       // "tensor", "context", "pipeline", "gradients", "weights", …
  std::string operation;  // "reduce_scatter a bucket"
  int ranks = 1;          // of the group
  double calls = 0;
  double call_bytes = 0;  // the array of one call, as nccl-tests count it
  double rank_bytes = 0;  // that a rank sends
  double seconds = 0;
  std::string hidden_by;
  double hider_s = 0;  // compute that can hide it
  double exposed_s = 0;
  double ratio() const { return hider_s > 0 ? seconds / hider_s : 0; }
};

// Seconds of a layer's, or stage's, forward and backward for one micro-batch.
struct TwoWays {
  double forward = 0;
  double backward = 0;
  double both() const { return forward + backward; }
};

// Tensor parallelism of one stage for one micro-batch. With sequence parallelism each layer has 4
// collectives in forward and 6 in backward (the linears' inputs are gathered again for the weights'
// gradients), full recompute repeats the 4; without it 2 and 2 all_reduces.
struct TensorTraffic {
  TwoWays seconds, exposed, hider;  // hider: matrix products that the pieces can run beside
  double calls = 0;
  double call_bytes = 0;
};
TensorTraffic tensor_traffic(const Model& model, const ModelLayout& layout,
                             const PipelineStage& stage, Prices& prices);

// Context parallelism of one stage for one micro-batch: keys and values go round a ring of cp ranks, each hop
// beside the attention of the block before. In backward their gradients follow one visit behind
// (tutti/exchange/ring.hpp); the last hop, to the block's owner, has nothing to hide behind.
struct ContextTraffic {
  TwoWays seconds, exposed, hider;
  double hops = 0;  // of a forward
  double hop_bytes = 0;
};
ContextTraffic context_traffic(const Model& model, const ModelLayout& layout,
                               const PipelineStage& stage, Prices& prices);

// One message between neighbouring stages, one way.
struct PipelineTraffic {
  double message_bytes = 0;
  double message_s = 0;              // of the slowest boundary
  std::vector<double> boundaries_s;  // of each, in the model's order
  double calls = 0;                  // of a rank in the middle, a step: both ways
};
PipelineTraffic pipeline_traffic(const Model& model, const ModelLayout& layout, Prices& prices);

}  // namespace tutti::plan
