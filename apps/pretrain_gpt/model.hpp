// apps/pretrain_gpt/model.hpp - a GPT or a Llama, or a rank's share of one, whose forward says which weights it is
// about to read.
//
//   embedding.word_embeddings (+ position_embeddings)
//   decoder.layers.i (layers.hpp)
//   decoder.final_layernorm, output_layer (tied to the word embedding unless told otherwise)
//
// However it is split, a parameter has the name that it has in the whole model, and its part of the values.
//
// Shapes: b sequences, s tokens of each that this rank has, h hidden.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "data.hpp"
#include "flags.hpp"
#include "layers.hpp"
#include "precision.hpp"
#include "recompute.hpp"
#include "split.hpp"
#include "tutti/libtorch.hpp"
#include "tutti/libtorch/parallel.hpp"
#include "tutti/libtorch/trainer.hpp"

namespace pretrain {

using tutti::libtorch::DataParallel;

// What of the model a rank has, and who shares its layers and sequences with it.
struct ModelShare {
  std::vector<LayerRange> stages;  // by virtual stage
  bool embeds = true;              // the first of them begins with tokens
  bool predicts = true;            // the last of them ends with the head
  tutti::libtorch::SharedTensorParallel tensor;
  std::shared_ptr<tutti::libtorch::ContextParallel> context;  // null: whole sequences
};
// All of it, on one rank.
ModelShare whole_share(const Flags& flags);
// Collective.
tutti::Result<ModelShare> share_of(const Flags& flags, const Split& split);

class Gpt : public torch::nn::Module {
 public:
  Gpt(const Flags& flags, ModelShare share);

  // [b, s] → [b, s, h], or this rank's part of the sequence.
  torch::Tensor embed(const torch::Tensor& tokens, const PassFacts& pass);
  // The layers of one virtual stage.
  torch::Tensor transform(int virtual_stage, torch::Tensor x, const PassFacts& pass);
  // Of the vocabulary, or of this rank's part of it: [b, s, v].
  torch::Tensor logits(const torch::Tensor& x, const PassFacts& pass);
  // Cross entropy of each token, f32 or f64: [b, s].
  torch::Tensor losses(const torch::Tensor& x, const torch::Tensor& labels, const PassFacts& pass);

  const ModelShare& share() const { return share_; }
  torch::Device device() const { return tables_.mask.device(); }
  // With all it has; before it is wrapped.
  void move_to(torch::Device device);
  // In place of cross entropy; empty: that.
  void set_loss(tutti::libtorch::TokenLoss loss) { loss_ = std::move(loss); }
  // Weight gradients of linear layers wait there; null: they do not.
  void queue_weights(tutti::libtorch::WeightQueue* queue);
  // What train::Parameter is told of one of its parameters.
  tutti::train::ParameterPlace place_of(const torch::Tensor& parameter) const;

 private:
  ModelShare share_;
  double dropout_;
  std::uint64_t seed_;
  bool is_tied_;
  std::vector<tutti::exchange::IndexRun> tokens_;  // of a sequence, that this rank's layers see
  std::int64_t seq_length_, vocabulary_;
  std::shared_ptr<torch::nn::Module> embedding_;
  std::shared_ptr<tutti::libtorch::VocabParallelEmbedding> words_;
  torch::nn::Embedding positions_{nullptr};  // none: rotary
  std::shared_ptr<torch::nn::Module> output_layer_;
  std::vector<std::vector<std::shared_ptr<Block>>> stages_;
  std::vector<std::vector<LayerChunk>> chunks_;  // of each stage
  std::shared_ptr<Norm> final_layernorm_;
  torch::Tensor head_;
  SequenceTables tables_;
  tutti::libtorch::WeightQueue* queue_ = nullptr;
  tutti::libtorch::TokenLoss loss_;
};

// Of weights: f32, bf16 or f16.
torch::ScalarType torch_type(tutti::Dtype dtype);

// With weights that depend on the seed and their names alone, not on order or split.
std::shared_ptr<Gpt> make_model(const Flags& flags, ModelShare share);

// A batch as the model wants it: of each sequence the tokens that this rank has.
struct ModelBatch {
  torch::Tensor tokens, labels;  // [b, s]
  torch::Tensor loss_mask;       // [b, s]
  std::int64_t counted = 0;      // tokens that are not masked
};
ModelBatch cut_batch(const Gpt& model, const TokenBatch& batch, int sequences);

// Sum of the cross entropies of all tokens that count: of a model that is not cut into stages.
torch::Tensor loss_sum(Gpt& model, const ModelBatch& batch, const PassFacts& pass);

// Whether it is a layer of the decoder: its weights are gathered together where they are kept in shards.
bool is_block(const torch::nn::Module& module);

// 0: decays; 1: biases and norms, which do not.
int parameter_group(const std::string& name, const torch::Tensor& value);

}  // namespace pretrain
