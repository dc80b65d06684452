// plan/model_layout.hpp - how a model is spread over ranks, and in which batches it is trained.
//
// Ranks are numbered as Megatron does it: tensor parallel ones lie beside each other, then context,
// data and pipeline parallel ones. So a tensor group has stride 1, a context group tp, a data group
// tp·cp, a pipeline tp·cp·dp; gradients are reduced over data and context ranks together.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "plan/cluster.hpp"
#include "plan/collective_cost.hpp"
#include "tutti/pipeline/schedule.hpp"
#include "tutti/plan/model.hpp"

namespace tutti::plan {

// What backward computes again instead of keeping it. `selective`: the attention scores, as flash
// attention does it; `full`: the whole layer, from its input.
enum class Recompute : std::uint8_t { none, selective, full };
inline constexpr int kRecomputes = 3;
std::string_view to_string(Recompute recompute) noexcept;
std::optional<Recompute> parse_recompute(std::string_view word) noexcept;

// Bytes a parameter takes, by what is kept of it. Adam: two moments, and a main weight where the
// weight itself is short.
struct Precision {
  std::string_view name;
  double weight = 2;      // also activations and weights on the wire
  double gradient = 4;    // also on the wire, unless it is rounded for that
  double optimizer = 12;  // sharded by ZeRO-1
};
// bf16 (f32 gradients), fp16 (fp16 gradients, main gradient beside the moments), fp32.
std::optional<Precision> parse_precision(std::string_view word) noexcept;

struct ModelLayout {
  int dp = 1, tp = 1, pp = 1, cp = 1;
  int virtual_stages = 1;  // pieces of the model on each pipeline rank (interleaved 1F1B)
  int zero = 0;            // 1: optimizer sharded, 2: and gradients, 3: and weights
  Recompute recompute = Recompute::selective;
  bool sequence_parallel = true;  // with tp: norms and dropout are split by sequence
  int seq = 0;                    // tokens of a sequence; 0: the model's context
  int micro_batch = 1;            // sequences
  std::int64_t global_batch = 0;  // sequences; 0: one micro-batch a data-parallel rank
  bool overlap_grad_reduce = true;
  bool overlap_param_gather = true;
  bool overlap_tp = false;  // collectives in pieces beside the matrix product that they feed
  double bucket_bytes = 0;  // of gradients; 0: as Megatron chooses
  // Gradients are sent in bf16 and summed in f32: copies of them beside those that are kept.
  bool grad_reduce_in_bf16 = false;
  // Of gradients. train::DataParallel folds in rank order, for the same bits whatever the layout of hosts.
  ReductionOrder gradient_order = ReductionOrder::any;
  Precision precision{"bf16", 2, 4, 12};

  int ranks() const { return dp * tp * pp * cp; }
  std::int64_t micro_batches() const { return global_batch / (std::int64_t{dp} * micro_batch); }
  // Of one micro-batch on one rank.
  double tokens() const { return double(seq) / cp * micro_batch; }
  int data_ranks() const { return dp * cp; }
  GroupSeats tensor_group() const { return {tp, 1}; }
  GroupSeats data_group() const { return {data_ranks(), tp}; }
  GroupSeats context_group() const { return {cp, tp}; }
  GroupSeats pipeline_group() const { return {pp, tp * cp * dp}; }
  // 1F1B; interleaved where ranks hold several pieces.
  pipeline::PipelineKind schedule() const;
  pipeline::PipelineShape pipeline_shape() const;
  double gradient_bucket_bytes() const;
  // Of a gradient: as it is sent, and as it lies with what is sent.
  double sent_gradient_bytes() const { return grad_reduce_in_bf16 ? 2 : precision.gradient; }
  double whole_gradient_bytes() const { return precision.gradient + (grad_reduce_in_bf16 ? 2 : 0); }
};

// Fills seq and global_batch where they are 0, and names a contradiction, or ranks that the cluster
// does not have.
Result<ModelLayout> complete(ModelLayout layout, const Model& model, const Cluster& cluster);

}  // namespace tutti::plan
