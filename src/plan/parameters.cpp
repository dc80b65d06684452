#include <fmt/format.h>

#include "tutti/plan/model.hpp"

namespace tutti::plan {
inline namespace v1 {
namespace {

Status wrong(std::string text) { return Status(Code::invalid_argument, std::move(text)); }

}  // namespace

Result<Model> complete(Model model) {
  struct Positive {
    const char* name;
    std::int64_t value;
  };
  for (const auto& [name, value] : {Positive{"layers", model.layers},
                                    {"hidden", model.hidden},
                                    {"heads", model.heads},
                                    {"vocab", model.vocab}})
    if (value < 1) return wrong(fmt::format("{} must be at least 1, not {}", name, value));
  for (const auto& [name, value] : {Positive{"kv_heads", model.kv_heads},
                                    {"head_dim", model.head_dim},
                                    {"ffn", model.ffn},
                                    {"max_positions", model.max_positions},
                                    {"context", model.context}})
    if (value < 0) return wrong(fmt::format("{} must not be negative: {}", name, value));
  if (model.layers > 100000) return wrong(fmt::format("{} layers are too many", model.layers));
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.heads % model.kv_heads != 0)
    return wrong(
        fmt::format("heads {} is not a multiple of kv_heads {}", model.heads, model.kv_heads));
  if (model.head_dim == 0) {
    if (model.hidden % model.heads != 0)
      return wrong(
          fmt::format("hidden {} is not a multiple of heads {}; give head_dim if that is "
                      "meant",
                      model.hidden, model.heads));
    model.head_dim = model.hidden / model.heads;
  }
  if (model.ffn == 0) model.ffn = 4 * model.hidden;
  // Counts are 64 bits wide.
  const double width = static_cast<double>(model.heads) * static_cast<double>(model.head_dim);
  const double rows = 4 * width + 3 * static_cast<double>(model.ffn) +
                      2 * static_cast<double>(model.vocab) +
                      static_cast<double>(model.max_positions);
  if (static_cast<double>(model.layers) * static_cast<double>(model.hidden) * rows > 1e17)
    return wrong("the model has more than 10^17 parameters");
  if (model.context == 0) model.context = model.max_positions != 0 ? model.max_positions : 4096;
  return model;
}

ParameterCount count_parameters(const Model& model) {
  const std::int64_t h = model.hidden;
  const std::int64_t q = model.query_width();
  const std::int64_t kv = model.kv_width();
  const std::int64_t norm = model.bias ? 2 * h : h;  // scale, and shift
  const std::int64_t into_mlp = model.glu ? 2 : 1;
  ParameterCount count;
  count.attention = h * (q + 2 * kv) + q * h;
  count.mlp = (into_mlp + 1) * h * model.ffn;
  count.norms = 2 * norm;
  count.biases = model.bias ? (q + 2 * kv) + h + into_mlp * model.ffn + h : 0;
  count.layer = count.attention + count.mlp + count.norms + count.biases;
  count.embedding = model.vocab * h;
  count.positions = model.max_positions * h;
  count.final_norm = norm;
  count.head = model.tied ? 0 : model.vocab * h;
  count.total = model.layers * count.layer + count.embedding + count.positions + count.final_norm +
                count.head;
  return count;
}

TokenFlops token_flops(const Model& model, std::int64_t seq) {
  const ParameterCount count = count_parameters(model);
  const auto layers = static_cast<double>(model.layers);
  TokenFlops flops;
  flops.linear = 2 * layers * static_cast<double>(count.attention + count.mlp);
  flops.scores = 4 * layers * static_cast<double>(seq * model.query_width()) / 2;
  flops.head = 2 * static_cast<double>(model.vocab * model.hidden);
  return flops;
}

}  // namespace v1
}  // namespace tutti::plan
