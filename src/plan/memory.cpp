#include "plan/memory.hpp"

#include <algorithm>
#include <cmath>

#include "tutti/plan/memory.hpp"

namespace tutti::plan {
namespace {

// The first stage keeps the embedding's dropout mask, the last one the final norm's and the head's
// input and f32 logits.
double ends_activations(const Model& model, const ModelLayout& layout, const PipelineStage& stage,
                        double in_flight) {
  const double tokens = layout.tokens();
  const auto h = static_cast<double>(model.hidden);
  const double split = layout.sequence_parallel ? layout.tp : 1;
  double bytes = 0;
  if (stage.index == 0 && model.dropout) bytes += tokens * h / split * in_flight;
  if (stage.index == layout.pp - 1)
    bytes += tokens * (2 * layout.precision.weight * h / split +
                       4 * static_cast<double>(model.vocab) / layout.tp);
  return bytes;
}

double layer_elements(const Model& model, const ModelLayout& layout) {
  double sum = 0;
  for (const ModelPart& part : layer_parts(model, layout)) sum += part.elements;
  return sum;
}

}  // namespace

LayerActivations layer_activations(const Model& model, const ModelLayout& layout,
                                   Recompute recompute) {
  const double tokens = layout.tokens();
  const double element = layout.precision.weight;
  const auto h = static_cast<double>(model.hidden);
  const double split = layout.sequence_parallel ? layout.tp : 1;
  LayerActivations bytes;
  if (recompute == Recompute::full) {
    bytes.by_sequence = tokens * element * h / split;  // the layer's input alone
    return bytes;
  }
  // Inputs of two norms, of qkv and of the MLP; two dropout masks of a byte.
  bytes.by_sequence = tokens * h * (4 * element + (model.dropout ? 2 : 0)) / split;
  // Q, K, V and the projection's input; the MLP's before and behind its activation function.
  const auto width = static_cast<double>(2 * model.query_width() + 2 * model.kv_width());
  const double inside = static_cast<double>(model.ffn) * (model.glu ? 3 : 2);
  bytes.by_tensor = tokens * element * (width + inside) / layout.tp;
  // Softmax; with dropout also its mask and what it left.
  if (recompute == Recompute::none)
    bytes.scores = tokens * layout.seq * static_cast<double>(model.heads) / layout.tp *
                   (model.dropout ? 2 * element + 1 : element);
  return bytes;
}

double bytes_per_parameter(const Precision& precision, int zero, int data_ranks) {
  const double d = data_ranks;
  return precision.weight / (zero >= 3 ? d : 1) + precision.gradient / (zero >= 2 ? d : 1) +
         precision.optimizer / (zero >= 1 ? d : 1);
}

double micro_batches_in_flight(const ModelLayout& layout, int stage) {
  return static_cast<double>(
             pipeline::activation_bound(layout.schedule(), layout.pipeline_shape(), stage)) /
         layout.virtual_stages;
}

Memory stage_memory(const Model& model, const ModelLayout& layout, const PipelineStage& stage) {
  const double d = layout.data_ranks();
  const Precision& precision = layout.precision;
  Memory memory;
  memory.stage = stage.index;
  memory.weights = stage.elements * precision.weight / (layout.zero >= 3 ? d : 1);
  memory.gradients =
      stage.elements * (layout.zero >= 2 ? precision.gradient / d : layout.whole_gradient_bytes());
  memory.optimizer = stage.elements * precision.optimizer / (layout.zero >= 1 ? d : 1);
  memory.in_flight = micro_batches_in_flight(layout, stage.index);
  memory.activations =
      memory.in_flight * stage.layers * layer_activations(model, layout, layout.recompute).total() +
      ends_activations(model, layout, stage, memory.in_flight);
  if (layout.recompute == Recompute::full)  // one layer at a time is whole again, but its scores
    memory.activations += layer_activations(model, layout, Recompute::selective).total();
  if (layout.zero >= 2 && d > 1) {
    const double layer = layer_elements(model, layout);
    memory.buffers = layer * layout.whole_gradient_bytes();
    if (layout.zero == 3) memory.buffers += 2 * layer * precision.weight;  // at work, and the next
  }
  return memory;
}

namespace {

// What a replica keeps of its layers, with what of it is computed again just then: when forward ends, and at most
// while backward is in an MLP and in attention. By then nothing is left of the layers behind.
struct KeptOfLayers {
  double at_end = 0, at_mlp = 0, at_attention = 0;
};

KeptOfLayers kept_of_layers(const Model& model, const ModelLayout& layout,
                            const RecomputeShape& again) {
  using Kind = RecomputeShape::Kind;
  const LayerActivations layer = layer_activations(model, layout, Recompute::none);
  const auto layers = static_cast<double>(model.layers);
  const auto some = std::min(static_cast<double>(std::max(again.layers, 1)), layers);
  const double whole = layer.total();
  const double inputs = layer_activations(model, layout, Recompute::full).total() *
                        (again.kind == Kind::uniform ? std::ceil(layers / some) : some);
  const double left = (layers - some) * whole;
  switch (again.kind) {
    case Kind::none: return {layers * whole, layers * whole, layers * whole};
    case Kind::selective: {
      const double rest = layers * (whole - layer.scores);
      return {rest, rest, rest + layer.scores};
    }
    case Kind::uniform: return {inputs, inputs + some * whole, inputs + some * whole};
    case Kind::block: {
      const double most = inputs + std::max(left, whole);
      return {inputs + left, most, most};
    }
  }
  return {};
}

// What a replica's backward has at most at one time: all that forward kept, and what comes and goes with it.
double largest_activations(const Model& model, const ModelLayout& layout, const KeptOfLayers& kept,
                           double ends) {
  const double tokens = layout.tokens();
  const double element = layout.precision.weight;
  const double logits = 4 * tokens * static_cast<double>(model.vocab);
  const double words = element * static_cast<double>(model.vocab * model.hidden);
  const double inner = tokens * element * static_cast<double>(model.ffn);
  const double scores = layer_activations(model, layout, Recompute::none).scores;
  ends -= logits;
  return std::max({
      kept.at_end + ends + 3 * logits,  // of the loss: log-probabilities and two gradients
      // of the head: its output's gradient, its weights'
      kept.at_end + ends + logits * element / 4 + words,
      // of a layer's MLP, whose insides have gradients
      kept.at_mlp + ends + (model.glu ? 4 : 2) * inner,
      // of its attention; the MLP is done
      kept.at_attention + ends - (model.glu ? 3 : 2) * inner + 2 * scores,
      (model.tied ? 3 : 1) * words,  // of the embedding: its part, the head's, their sum
  });
}

}  // namespace

ReplicaMemory v1::replica_memory(const Model& model, const ReplicaShape& shape) {
  ModelLayout layout;
  layout.dp = shape.ranks;
  layout.zero = shape.zero;
  layout.recompute = Recompute::none;
  layout.seq = shape.seq;
  layout.micro_batch = shape.micro_batch;
  layout.global_batch = std::int64_t{shape.micro_batch} * shape.ranks;
  layout.precision.weight = shape.bf16 ? 2 : 4;
  layout.precision.gradient = 4;
  layout.grad_reduce_in_bf16 = shape.grad_reduce_in_bf16;
  layout.precision.optimizer = 4 * (shape.moments + (shape.bf16 ? 1 : 0));
  const PipelineStage all = make_stage(model, layout, 0);
  const Memory memory = stage_memory(model, layout, all);
  return {memory.weights, memory.gradients, memory.optimizer,
          largest_activations(model, layout, kept_of_layers(model, layout, shape.recompute),
                              ends_activations(model, layout, all, 1)),
          memory.buffers};
}

}  // namespace tutti::plan
