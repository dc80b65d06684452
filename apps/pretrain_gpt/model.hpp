// apps/pretrain_gpt/model.hpp - a GPT whose forward says which weights it is about to read.
//
//   embedding.word_embeddings + position_embeddings
//   decoder.layers.i: x += linear_proj(attention(linear_qkv(input_layernorm(x))))
//                     x += mlp.linear_fc2(gelu(mlp.linear_fc1(pre_mlp_layernorm(x))))
//   decoder.final_layernorm, output_layer (tied to the word embedding unless told otherwise)
//
// Shapes: b sequences, s tokens of each, h hidden.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "data.hpp"
#include "flags.hpp"
#include "tutti/libtorch.hpp"

namespace pretrain {

using tutti::libtorch::DataParallel;

class Block;

class Gpt : public torch::nn::Module {
 public:
  explicit Gpt(const Flags& flags);

  // Logits [b, s, vocabulary] of tokens [b, s]. `gates` may be null: then weights are just read.
  torch::Tensor forward(const torch::Tensor& tokens, DataParallel* gates);
  torch::Device device() const { return mask_.device(); }
  // With all it has; before it is wrapped.
  void move_to(torch::Device device);

 private:
  torch::Tensor embed(const torch::Tensor& tokens, DataParallel* gates);

  double dropout_;
  std::shared_ptr<torch::nn::Module> embedding_;
  torch::nn::Embedding words_{nullptr}, positions_{nullptr};
  std::shared_ptr<torch::nn::Module> output_layer_;
  std::vector<std::shared_ptr<Block>> blocks_;
  torch::nn::LayerNorm final_layernorm_{nullptr};
  torch::Tensor head_;
  torch::Tensor mask_;  // [s, s], true above the diagonal
};

// With weights that depend on the seed and their names alone, not on the order of definition.
std::shared_ptr<Gpt> make_model(const Flags& flags);

// Sum of the cross entropies of all tokens that count, f32.
torch::Tensor loss_sum(Gpt& model, const TokenBatch& batch, int sequences, DataParallel* gates);

// 0: decays; 1: biases and norms, which do not.
int parameter_group(const std::string& name, const torch::Tensor& value);

}  // namespace pretrain
