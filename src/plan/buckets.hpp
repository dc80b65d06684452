// plan/buckets.hpp - a stage's weights cut into buckets, as transfers of the timeline.
#pragma once

#include <vector>

#include "plan/pipeline_stage.hpp"
#include "plan/prices.hpp"
#include "tutti/plan/timeline.hpp"

namespace tutti::plan {

// Weights that travel together: first and last piece of the stage, in forward order.
struct PlannedBucket {
  double elements = 0;
  std::size_t first = 0, last = 0;
};
// From the end of forward, as gradients become ready; a bucket closes when it has its size.
std::vector<PlannedBucket> cut_buckets(const PipelineStage& stage, double elements_each);

// Gradients beside backward: ready when the bucket's first piece, the last in backward, is through.
std::vector<Transfer> reduction_transfers(const PipelineStage& stage,
                                          const std::vector<PlannedBucket>& buckets,
                                          const ModelLayout& layout, double backward_s,
                                          Prices& prices);
// Weights beside the next forward: needed when it comes to the bucket's first piece.
std::vector<Transfer> gather_transfers(const PipelineStage& stage,
                                       const std::vector<PlannedBucket>& buckets,
                                       const ModelLayout& layout, double forward_s, Prices& prices);

// ZeRO-3, one micro-batch of `layers` equal layers: a layer's weights are gathered while the one
// before computes; in backward its gradients are scattered on the same channel.
struct GatheredLayers {
  double forward_exposed_s = 0;
  double backward_exposed_s = 0;
};
GatheredLayers hide_gathered_layers(int layers, double forward_s, double backward_s,
                                    double gather_s, double scatter_s, bool overlap);

}  // namespace tutti::plan
