// tutti/plan/model.hpp - a transformer's shape, its parameters and its floating-point work.
//
// docs/algorithms/model_arithmetic.md has every formula. Counts are of the model as published: no
// padding of the vocabulary. FLOPs are those of matrix products, a multiply and an add each.
//
// Thread-safety  values and pure functions.
//
//   auto model = tutti::plan::preset_model("llama2-70b");
//   tutti::plan::count_parameters(*model).total;               68976648192
//   tutti::plan::token_flops(*model, 4096).forward();          per token, at that length
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::plan {
inline namespace [[gnu::visibility("default")]] v1 {

struct Model {
  std::string name;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // fewer than heads: grouped queries
  std::int64_t head_dim = 0;  // hidden / heads, but for odd models
  std::int64_t ffn = 0;       // width of the MLP
  std::int64_t vocab = 0;
  std::int64_t max_positions = 0;  // learned position embeddings; 0: rotary, without parameters
  std::int64_t context = 0;        // tokens of a sequence, as it was trained
  bool glu = false;                // gated MLP: three matrices instead of two
  bool tied = false;               // the head is the word embedding
  bool bias = false;               // on linears and norms (LayerNorm); else neither (RMSNorm)
  bool dropout = false;            // keeps masks among the activations

  std::int64_t query_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
};

// In the order in which they are listed to users.
const std::vector<Model>& preset_models();
// Code::invalid_argument lists the names that there are.
Result<Model> preset_model(std::string_view name);
// Fills what follows from the rest (kv_heads, head_dim, ffn, context) and names a contradiction.
Result<Model> complete(Model model);

struct ParameterCount {
  // One layer.
  std::int64_t attention = 0;  // matrices: query, key, value, projection
  std::int64_t mlp = 0;        // matrices
  std::int64_t norms = 0;
  std::int64_t biases = 0;  // of the linears
  std::int64_t layer = 0;
  // The rest.
  std::int64_t embedding = 0;
  std::int64_t positions = 0;
  std::int64_t final_norm = 0;
  std::int64_t head = 0;  // 0 when tied
  std::int64_t total = 0;
};
ParameterCount count_parameters(const Model& model);

// Of one token's forward in a sequence of `seq` tokens; backward is twice that.
struct TokenFlops {
  double linear = 0;  // matrices of all layers, 2 a weight
  double scores = 0;  // softmax(QKᵀ)V of all layers: 4·seq·heads·head_dim each, half of it: causal
  double head = 0;  // 2·vocab·hidden
  double forward() const { return linear + scores + head; }
};
TokenFlops token_flops(const Model& model, std::int64_t seq);

}  // namespace v1
}  // namespace tutti::plan
