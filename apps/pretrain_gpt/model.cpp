#include "model.hpp"

#include <cmath>

#include "device.hpp"

namespace pretrain {

namespace nn = torch::nn;
using tutti::libtorch::Gate;

namespace {

class Attention : public nn::Module {
 public:
  explicit Attention(const Flags& flags)
      : heads_(flags.num_attention_heads), dropout_(flags.dropout) {
    const int width = flags.hidden_size;
    const auto define_qkv = [&] {
      linear_qkv = register_module("linear_qkv", nn::Linear(width, 3 * width));
    };
    if (!flags.shuffle_definition_order) define_qkv();
    linear_proj = register_module("linear_proj", nn::Linear(width, width));
    if (flags.shuffle_definition_order) define_qkv();
  }

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask, DataParallel* gates) {
    const auto b = x.size(0), s = x.size(1), h = x.size(2);
    Gate qkv_gate(gates, *linear_qkv);
    // [b, s, 3h] -> 3 of [b, heads, s, h / heads]
    auto parts =
        linear_qkv->forward(x).view({b, s, 3, heads_, h / heads_}).permute({2, 0, 3, 1, 4});
    const auto query = parts[0], key = parts[1], value = parts[2];
    auto scores =
        torch::matmul(query, key.transpose(-2, -1)) / std::sqrt(static_cast<double>(h / heads_));
    scores = scores.masked_fill(mask.slice(0, 0, s).slice(1, 0, s), -1e4);
    auto weights = torch::dropout(torch::softmax(scores, -1), dropout_, is_training());
    auto mixed = torch::matmul(weights, value).transpose(1, 2).reshape({b, s, h});
    Gate proj_gate(gates, *linear_proj);
    return linear_proj->forward(mixed);
  }

 private:
  std::int64_t heads_;
  double dropout_;
  nn::Linear linear_qkv{nullptr}, linear_proj{nullptr};
};

class Mlp : public nn::Module {
 public:
  explicit Mlp(int width) {
    linear_fc1 = register_module("linear_fc1", nn::Linear(width, 4 * width));
    linear_fc2 = register_module("linear_fc2", nn::Linear(4 * width, width));
  }

  torch::Tensor forward(const torch::Tensor& x, DataParallel* gates) {
    Gate first(gates, *linear_fc1);
    auto wide = torch::gelu(linear_fc1->forward(x));
    Gate second(gates, *linear_fc2);
    return linear_fc2->forward(wide);
  }

 private:
  nn::Linear linear_fc1{nullptr}, linear_fc2{nullptr};
};

nn::LayerNorm layer_norm(int width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

}  // namespace

class Block : public nn::Module {
 public:
  explicit Block(const Flags& flags) : dropout_(flags.dropout) {
    const int width = flags.hidden_size;
    input_layernorm = register_module("input_layernorm", layer_norm(width));
    self_attention = register_module("self_attention", std::make_shared<Attention>(flags));
    pre_mlp_layernorm = register_module("pre_mlp_layernorm", layer_norm(width));
    mlp = register_module("mlp", std::make_shared<Mlp>(width));
  }

  torch::Tensor forward(torch::Tensor x, const torch::Tensor& mask, DataParallel* gates) {
    Gate first(gates, *input_layernorm);
    x = x + drop(self_attention->forward(input_layernorm->forward(x), mask, gates));
    Gate second(gates, *pre_mlp_layernorm);
    return x + drop(mlp->forward(pre_mlp_layernorm->forward(x), gates));
  }

 private:
  torch::Tensor drop(const torch::Tensor& x) { return torch::dropout(x, dropout_, is_training()); }

  double dropout_;
  nn::LayerNorm input_layernorm{nullptr}, pre_mlp_layernorm{nullptr};
  std::shared_ptr<Attention> self_attention;
  std::shared_ptr<Mlp> mlp;
};

Gpt::Gpt(const Flags& flags) : dropout_(flags.dropout) {
  const int width = flags.hidden_size;
  embedding_ = register_module("embedding", std::make_shared<nn::Module>());
  words_ = embedding_->register_module("word_embeddings", nn::Embedding(kVocabulary, width));
  positions_ =
      embedding_->register_module("position_embeddings", nn::Embedding(flags.seq_length, width));
  auto decoder = register_module("decoder", std::make_shared<nn::Module>());
  auto layers = decoder->register_module("layers", std::make_shared<nn::Module>());
  for (int i = 0; i < flags.num_layers; ++i) {
    blocks_.push_back(layers->register_module(std::to_string(i), std::make_shared<Block>(flags)));
  }
  final_layernorm_ = decoder->register_module("final_layernorm", layer_norm(width));
  output_layer_ = register_module("output_layer", std::make_shared<nn::Module>());
  const bool own_head = flags.untie_embeddings_and_output_weights;
  head_ = output_layer_->register_parameter(
      "weight", own_head ? torch::empty({kVocabulary, width}) : words_->weight);
  mask_ = torch::ones({flags.seq_length, flags.seq_length}, torch::kBool).triu(1);
}

torch::Tensor Gpt::embed(const torch::Tensor& tokens, DataParallel* gates) {
  Gate gate(gates, *embedding_);
  const auto places =
      torch::arange(tokens.size(1), torch::TensorOptions().dtype(torch::kLong).device(device()));
  return torch::dropout(words_->forward(tokens) + positions_->forward(places), dropout_,
                        is_training());
}

void Gpt::move_to(torch::Device device) {
  to(device);
  mask_ = mask_.to(device);
}

torch::Tensor Gpt::forward(const torch::Tensor& tokens, DataParallel* gates) {
  auto x = embed(tokens, gates);
  for (auto& block : blocks_) x = block->forward(x, mask_, gates);
  Gate norm_gate(gates, *final_layernorm_);
  x = final_layernorm_->forward(x);
  Gate head_gate(gates, *output_layer_);
  return torch::matmul(x, head_.t());
}

std::shared_ptr<Gpt> make_model(const Flags& flags) {
  auto model = std::make_shared<Gpt>(flags);
  torch::NoGradGuard no_grad;
  const double spread = 0.02;
  const double residual_spread = spread / std::sqrt(2.0 * flags.num_layers);
  for (auto& item : model->named_parameters()) {
    const std::string& name = item.key();
    torch::Tensor& value = item.value();
    const bool tied = name == "output_layer.weight" && !flags.untie_embeddings_and_output_weights;
    if (tied) continue;
    if (value.dim() < 2) {
      value.fill_(name.find("layernorm.weight") != std::string::npos ? 1.0 : 0.0);
      continue;
    }
    std::uint64_t seed = mix(flags.seed, 0);
    for (const char letter : name) seed = mix(seed, static_cast<unsigned char>(letter));
    torch::manual_seed(seed);
    const bool residual = name.find("linear_proj") != std::string::npos ||
                          name.find("linear_fc2") != std::string::npos;
    value.normal_(0.0, residual ? residual_spread : spread);
  }
  if (flags.bf16) model->to(torch::kBFloat16);
  model->move_to(device_of(flags));
  return model;
}

torch::Tensor loss_sum(Gpt& model, const TokenBatch& batch, int sequences, DataParallel* gates) {
  const auto rows = [&](auto& values, torch::ScalarType type) {
    return torch::from_blob(const_cast<void*>(static_cast<const void*>(values.data())),
                            {sequences, static_cast<std::int64_t>(values.size()) / sequences},
                            torch::TensorOptions().dtype(type))
        .to(model.device());
  };
  const auto logits = model.forward(rows(batch.tokens, torch::kLong), gates).to(torch::kFloat);
  const auto losses = torch::nn::functional::cross_entropy(
      logits.view({-1, kVocabulary}), rows(batch.labels, torch::kLong).view(-1),
      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
  return (losses * rows(batch.loss_mask, torch::kFloat).view(-1)).sum();
}

int parameter_group(const std::string&, const torch::Tensor& value) {
  return value.dim() < 2 ? 1 : 0;
}

}  // namespace pretrain
