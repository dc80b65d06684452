#include "plan/buckets.hpp"

#include <algorithm>

namespace tutti::plan {
namespace {

// Share of a stage's forward that lies before each piece.
std::vector<double> shares_before(const PipelineStage& stage) {
  std::vector<double> shares(stage.parts.size() + 1, 0);
  for (std::size_t i = 0; i < stage.parts.size(); ++i)
    shares[i + 1] = shares[i] + stage.parts[i].flops;
  if (stage.forward_flops > 0)
    for (double& share : shares) share /= stage.forward_flops;
  return shares;
}

}  // namespace

std::vector<PlannedBucket> cut_buckets(const PipelineStage& stage, double elements_each) {
  std::vector<PlannedBucket> buckets;
  bool open = false;
  for (std::size_t i = stage.parts.size(); i-- > 0;) {
    if (stage.parts[i].elements == 0) continue;
    if (!open) buckets.push_back({0, i, i});
    buckets.back().elements += stage.parts[i].elements;
    buckets.back().first = i;
    open = buckets.back().elements < elements_each;
  }
  return buckets;
}

std::vector<Transfer> reduction_transfers(const PipelineStage& stage,
                                          const std::vector<PlannedBucket>& buckets,
                                          const ModelLayout& layout, double backward_s,
                                          Prices& prices) {
  const std::vector<double> before = shares_before(stage);
  const Collective collective =
      layout.zero == 0 ? Collective::all_reduce : Collective::reduce_scatter;
  const GroupSeats group = layout.data_group();
  // Sums are wider than what is added up: an all_reduce gathers them as they are.
  const bool widens = layout.zero == 0 && layout.grad_reduce_in_bf16;
  std::vector<Transfer> transfers;
  for (const PlannedBucket& bucket : buckets) {
    double seconds =
        prices.collective(widens ? Collective::reduce_scatter : collective, group,
                          bucket.elements * layout.sent_gradient_bytes(), layout.gradient_order);
    if (widens)
      seconds += prices.collective(Collective::all_gather, group,
                                   bucket.elements * layout.precision.gradient);
    transfers.push_back({backward_s * (1 - before[bucket.first]), seconds});
  }
  return transfers;
}

std::vector<Transfer> gather_transfers(const PipelineStage& stage,
                                       const std::vector<PlannedBucket>& buckets,
                                       const ModelLayout& layout, double forward_s,
                                       Prices& prices) {
  const std::vector<double> before = shares_before(stage);
  std::vector<Transfer> transfers;
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket)
    transfers.push_back({forward_s * before[bucket->first],
                         prices.collective(Collective::all_gather, layout.data_group(),
                                           bucket->elements * layout.precision.weight)});
  return transfers;
}

GatheredLayers hide_gathered_layers(int layers, double forward_s, double backward_s,
                                    double gather_s, double scatter_s, bool overlap) {
  if (!overlap) return {layers * gather_s, layers * (gather_s + scatter_s)};
  const double one_forward = forward_s / layers;
  const double one_backward = backward_s / layers;
  double now = 0;
  double channel = 0;
  double landed = gather_s;  // the first one's weights: nothing is computed before them
  channel = landed;
  for (int layer = 0; layer < layers; ++layer) {
    now = std::max(now, landed);
    if (layer + 1 < layers) landed = channel = std::max(channel, now) + gather_s;
    now += one_forward;
  }
  GatheredLayers result;
  result.forward_exposed_s = now - forward_s;
  now = 0;
  landed = channel = 0;  // the last layer's weights are still there from forward
  for (int layer = 0; layer < layers; ++layer) {
    now = std::max(now, landed);
    if (layer + 1 < layers) landed = channel = std::max(channel, now) + gather_s;
    now += one_backward;
    channel = std::max(channel, now) + scatter_s;
  }
  result.backward_exposed_s = std::max(now, channel) - backward_s;
  return result;
}

}  // namespace tutti::plan
