// apps/pretrain_gpt/layers.hpp - what a decoder is made of: norms, attention, MLP, and the layer that they form.
//
// GPT's or Llama's parts, as the flags say; a rank may have some of the heads and features, and some of the tokens.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "flags.hpp"
#include "rotary.hpp"
#include "tutti/libtorch.hpp"
#include "tutti/libtorch/parallel.hpp"

namespace pretrain {

// What a forward is about.
struct PassFacts {
  tutti::libtorch::DataParallel* gates = nullptr;  // null: weights are just read
  std::int64_t step = 0;
  std::uint32_t micro_batch = 0;  // among all of the step; dropout goes by both
};

// Where the layers' activations lie in the whole, and what makes dropout repeatable.
struct LayerSetting {
  tutti::libtorch::SharedTensorParallel tensor;
  std::shared_ptr<tutti::libtorch::ContextParallel> context;
  double dropout = 0;
  std::uint64_t seed = 0;
  std::int64_t seq_length = 0;                        // of a whole sequence
  std::vector<tutti::exchange::IndexRun> own_tokens;  // of it, between layers
};

// What all layers read and none learns.
struct SequenceTables {
  torch::Tensor mask;  // [s, s], true above the diagonal
  Rotary rotary;
};

// Dropout of activations between layers, [b, s, h]. Every dropout of the model has a number, its site.
inline constexpr std::uint32_t kEmbeddingSite = 0;
torch::Tensor drop_activations(const LayerSetting& setting, const torch::Tensor& x,
                               std::uint32_t site, const PassFacts& pass, bool training);

// LayerNorm, or RMSNorm, which has no bias.
class Norm : public torch::nn::Module {
 public:
  explicit Norm(const Flags& flags);
  torch::Tensor forward(const torch::Tensor& x) const;

 private:
  bool centred_;
  double epsilon_;
  torch::Tensor weight_, bias_;
};

class Attention;
class Mlp;

// x += linear_proj(attention(linear_qkv(input_layernorm(x))))
// x += mlp.linear_fc2(activation(mlp.linear_fc1(pre_mlp_layernorm(x))))
class Block : public torch::nn::Module {
 public:
  Block(const Flags& flags, const LayerSetting& setting, int layer);
  torch::Tensor forward(torch::Tensor x, const SequenceTables& tables, const PassFacts& pass);
  // Weight gradients of its linear layers wait there; null: they do not.
  void queue_weights(tutti::libtorch::WeightQueue* queue);

 private:
  LayerSetting setting_;
  int layer_;
  std::shared_ptr<Norm> input_layernorm_, pre_mlp_layernorm_;
  std::shared_ptr<Attention> self_attention_;
  std::shared_ptr<Mlp> mlp_;
};

}  // namespace pretrain
