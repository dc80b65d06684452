#include "plan/pipeline_stage.hpp"

namespace tutti::plan {
namespace {

using Role = ModelPart::Role;

// What backward computes once more.
double repeated(const ModelPart& part, Recompute recompute) {
  switch (recompute) {
    case Recompute::none: return 0;
    case Recompute::selective: return part.role == Role::scores ? part.flops : 0;
    case Recompute::full: return part.in_layer() ? part.flops : 0;
  }
  return 0;
}

void add_embedding(const Model& model, const ModelLayout& layout, PipelineStage& stage) {
  const auto h = static_cast<double>(model.hidden);
  stage.parts.push_back({Role::embedding,
                         static_cast<double>(model.vocab) * h / layout.tp +
                             static_cast<double>(model.max_positions) * h,
                         0});
}

// A tied head on another stage than the embedding is a copy of it.
void add_head(const Model& model, const ModelLayout& layout, PipelineStage& stage) {
  const auto h = static_cast<double>(model.hidden);
  const double matrix = static_cast<double>(model.vocab) * h / layout.tp;
  const bool shares = model.tied && layout.pp == 1;
  stage.parts.push_back({Role::final_norm, model.bias ? 2 * h : h, 0});
  stage.parts.push_back({Role::head, shares ? 0 : matrix, 2 * matrix * layout.tokens()});
}

}  // namespace

std::vector<ModelPart> layer_parts(const Model& model, const ModelLayout& layout) {
  const auto h = static_cast<double>(model.hidden);
  const auto q = static_cast<double>(model.query_width());
  const auto kv = static_cast<double>(model.kv_width());
  const auto f = static_cast<double>(model.ffn);
  const double gates = model.glu ? 2 : 1;
  const double bias = model.bias ? 1 : 0;
  const double norm = model.bias ? 2 * h : h;
  const double tp = layout.tp;
  const double tokens = layout.tokens();
  const auto linear = [&](Role role, double in, double out, double replicated_bias) {
    const double weights = in * out / tp;
    const double biases = replicated_bias > 0 ? bias * replicated_bias : bias * out / tp;
    return ModelPart{role, weights + biases, 2 * weights * tokens};
  };
  return {
      {Role::norm, norm, 0},
      linear(Role::qkv, h, q + 2 * kv, 0),
      {Role::scores, 0, 4.0 * layout.seq * q / 2 / tp * tokens},
      linear(Role::projection, q, h, h),
      {Role::norm, norm, 0},
      linear(Role::into_mlp, h, gates * f, 0),
      linear(Role::out_of_mlp, f, h, h),
  };
}

PipelineStage make_stage(const Model& model, const ModelLayout& layout, int index) {
  PipelineStage stage;
  stage.index = index;
  stage.layers = static_cast<int>(model.layers / layout.pp);
  if (index == 0) add_embedding(model, layout, stage);
  const std::vector<ModelPart> layer = layer_parts(model, layout);
  for (int i = 0; i < stage.layers; ++i)
    stage.parts.insert(stage.parts.end(), layer.begin(), layer.end());
  if (index == layout.pp - 1) add_head(model, layout, stage);
  for (const ModelPart& part : stage.parts) {
    stage.elements += part.elements;
    stage.forward_flops += part.flops;
    stage.recompute_flops += repeated(part, layout.recompute);
  }
  return stage;
}

}  // namespace tutti::plan
