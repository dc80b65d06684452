#include "model.hpp"

#include <cmath>

#include "device.hpp"

namespace pretrain {

namespace nn = torch::nn;
namespace exchange = tutti::exchange;
namespace lt = tutti::libtorch;
using lt::Gate;
using lt::HeldIndices;
using lt::SharedTensorParallel;
using tutti::Result;
using tutti::Status;

namespace {

// Every dropout of the model has a number.
constexpr std::uint32_t kEmbeddingSite = 0;
constexpr std::uint32_t kSitesOfLayer = 3;
enum class Site : std::uint32_t { probabilities = 1, attention = 2, mlp = 3 };
std::uint32_t site_of(int layer, Site site) {
  return static_cast<std::uint32_t>(layer) * kSitesOfLayer + static_cast<std::uint32_t>(site);
}

// Where the layers' activations lie in the whole, and what makes dropout repeatable.
struct LayerSetting {
  SharedTensorParallel tensor;
  std::shared_ptr<lt::ContextParallel> context;
  double dropout = 0;
  std::uint64_t seed = 0;
  std::int64_t seq_length = 0;                 // of a whole sequence
  std::vector<exchange::IndexRun> own_tokens;  // of it, between layers
};

lt::DropoutKey key_of(const LayerSetting& setting, std::uint32_t site, const PassFacts& pass) {
  return {setting.seed, pass.step, pass.micro_batch, site};
}

// [b, s, h]
torch::Tensor drop_activations(const LayerSetting& setting, const torch::Tensor& x,
                               std::uint32_t site, const PassFacts& pass, bool training) {
  if (setting.dropout == 0 || !training) return x;
  return lt::dropout(x, setting.dropout, key_of(setting, site, pass),
                     {lt::held_all(x.size(0)), HeldIndices{setting.seq_length, setting.own_tokens},
                      lt::held_all(x.size(2))});
}

class Attention : public nn::Module {
 public:
  Attention(const Flags& flags, const LayerSetting& setting, int layer)
      : setting_(setting), layer_(layer), heads_(flags.num_attention_heads) {
    const std::int64_t width = flags.hidden_size;
    const std::int64_t head = width / heads_;
    const auto define_qkv = [&] {
      linear_qkv = register_module("linear_qkv",
                                   std::make_shared<lt::ColumnParallelLinear>(
                                       setting.tensor, width, lt::Features{{3, heads_, head}, 1}));
    };
    if (!flags.shuffle_definition_order) define_qkv();
    linear_proj =
        register_module("linear_proj", std::make_shared<lt::RowParallelLinear>(
                                           setting.tensor, lt::Features{{heads_, head}, 0}, width));
    if (flags.shuffle_definition_order) define_qkv();
  }

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask, const PassFacts& pass) {
    Gate qkv_gate(pass.gates, *linear_qkv);
    const auto fused = linear_qkv->forward(x);
    const auto b = fused.size(0), s = fused.size(1);
    const auto heads = heads_ / setting_.tensor->size();
    // [b, s, 3h'] -> 3 of [b, heads', s, d]
    auto parts = fused.view({b, s, 3, heads, -1}).permute({2, 0, 3, 1, 4});
    auto mixed = setting_.context != nullptr ? attend_together(parts, pass)
                                             : attend_alone(parts, mask, pass);
    mixed = mixed.transpose(1, 2).reshape({b, s, -1});
    Gate proj_gate(pass.gates, *linear_proj);
    return linear_proj->forward(mixed);
  }

  std::shared_ptr<lt::ColumnParallelLinear> linear_qkv;
  std::shared_ptr<lt::RowParallelLinear> linear_proj;

 private:
  bool drops() const { return setting_.dropout > 0 && is_training(); }
  HeldIndices own_heads() const {
    return {heads_, {exchange::part_of(heads_, setting_.tensor->size(), setting_.tensor->rank())}};
  }

  torch::Tensor attend_alone(const torch::Tensor& parts, const torch::Tensor& mask,
                             const PassFacts& pass) const {
    const auto query = parts[0], key = parts[1], value = parts[2];
    const auto s = query.size(2);
    auto scores =
        torch::matmul(query, key.transpose(-2, -1)) / std::sqrt(static_cast<double>(query.size(3)));
    scores = scores.masked_fill(mask.slice(0, 0, s).slice(1, 0, s), -1e4);
    auto weights = torch::softmax(scores, -1);
    if (drops())
      weights = lt::dropout(
          weights, setting_.dropout, key_of(setting_, site_of(layer_, Site::probabilities), pass),
          {lt::held_all(weights.size(0)), own_heads(), lt::held_all(s), lt::held_all(s)});
    return torch::matmul(weights, value);
  }

  // With the ranks that have the rest of the sequence.
  torch::Tensor attend_together(const torch::Tensor& parts, const PassFacts& pass) const {
    lt::AttentionOptions options;
    options.length = setting_.seq_length;
    options.dropout = drops() ? setting_.dropout : 0;
    options.key = key_of(setting_, site_of(layer_, Site::probabilities), pass);
    options.heads = own_heads();
    return lt::attention(setting_.context, parts[0], parts[1], parts[2], options);
  }

  LayerSetting setting_;
  int layer_;
  std::int64_t heads_;
};

class Mlp : public nn::Module {
 public:
  Mlp(std::int64_t width, const SharedTensorParallel& tensor) {
    linear_fc1 = register_module("linear_fc1", std::make_shared<lt::ColumnParallelLinear>(
                                                   tensor, width, lt::Features{{4 * width}}));
    linear_fc2 = register_module("linear_fc2", std::make_shared<lt::RowParallelLinear>(
                                                   tensor, lt::Features{{4 * width}}, width));
  }

  torch::Tensor forward(const torch::Tensor& x, const PassFacts& pass) {
    Gate first(pass.gates, *linear_fc1);
    auto wide = torch::gelu(linear_fc1->forward(x));
    Gate second(pass.gates, *linear_fc2);
    return linear_fc2->forward(wide);
  }

  std::shared_ptr<lt::ColumnParallelLinear> linear_fc1;
  std::shared_ptr<lt::RowParallelLinear> linear_fc2;
};

nn::LayerNorm layer_norm(int width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

}  // namespace

class Block : public nn::Module {
 public:
  Block(const Flags& flags, const LayerSetting& setting, int layer)
      : setting_(setting), layer_(layer) {
    const int width = flags.hidden_size;
    input_layernorm = register_module("input_layernorm", layer_norm(width));
    self_attention =
        register_module("self_attention", std::make_shared<Attention>(flags, setting, layer));
    pre_mlp_layernorm = register_module("pre_mlp_layernorm", layer_norm(width));
    mlp = register_module("mlp", std::make_shared<Mlp>(width, setting.tensor));
    setting.tensor->mark_partial(*input_layernorm);
    setting.tensor->mark_partial(*pre_mlp_layernorm);
  }

  torch::Tensor forward(torch::Tensor x, const torch::Tensor& mask, const PassFacts& pass) {
    const lt::WeightScope scope(pass.gates, *this);
    x = scope.enter(x);
    Gate first(pass.gates, *input_layernorm);
    x = x + drop(self_attention->forward(input_layernorm->forward(x), mask, pass), Site::attention,
                 pass);
    Gate second(pass.gates, *pre_mlp_layernorm);
    return scope.leave(x +
                       drop(mlp->forward(pre_mlp_layernorm->forward(x), pass), Site::mlp, pass));
  }

  void queue_weights(lt::WeightQueue* queue) {
    self_attention->linear_qkv->queue = self_attention->linear_proj->queue = queue;
    mlp->linear_fc1->queue = mlp->linear_fc2->queue = queue;
  }

 private:
  torch::Tensor drop(const torch::Tensor& x, Site site, const PassFacts& pass) const {
    return drop_activations(setting_, x, site_of(layer_, site), pass, is_training());
  }

  LayerSetting setting_;
  int layer_;
  nn::LayerNorm input_layernorm{nullptr}, pre_mlp_layernorm{nullptr};
  std::shared_ptr<Attention> self_attention;
  std::shared_ptr<Mlp> mlp;
};

// ---- a rank's share

ModelShare whole_share(const Flags& flags) {
  ModelShare share;
  share.stages = layers_of_places(flags, 1);
  share.tensor = std::make_shared<lt::TensorParallel>(nullptr);
  return share;
}

namespace {

Result<std::shared_ptr<lt::ContextParallel>> context_of(const Flags& flags, const Split& split) {
  if (split.context() == nullptr) return std::shared_ptr<lt::ContextParallel>();
  lt::ContextParallelOptions options;
  options.exchange = lt::parse_cp_comm_type(flags.cp_comm_type).value();
  options.window = flags.cp_window_size;
  if (!flags.hierarchical_cp_sizes.empty()) options.inner = flags.hierarchical_cp_sizes[0];
  return lt::ContextParallel::create(split.context(), options);
}

}  // namespace

Result<ModelShare> share_of(const Flags& flags, const Split& split) {
  const SplitSizes& sizes = split.sizes();
  const auto places = layers_of_places(flags, sizes.pp * sizes.virtual_stages);
  ModelShare share;
  for (int i = 0; i < sizes.virtual_stages; ++i)
    share.stages.push_back(places[static_cast<std::size_t>(i * sizes.pp + split.pp_rank())]);
  share.embeds = split.is_first_stage();
  share.predicts = split.is_last_stage();
  lt::TensorParallelOptions options;
  options.sequence_parallel = flags.sequence_parallel && sizes.tp > 1;
  options.overlap = flags.tp_comm_overlap;
  share.tensor = std::make_shared<lt::TensorParallel>(split.tensor(), options);
  auto context = context_of(flags, split);
  if (!context.ok()) return context.status();
  share.context = *std::move(context);
  return share;
}

namespace {

// The tokens of a sequence that a rank is given.
std::vector<exchange::IndexRun> given_tokens(const ModelShare& share, std::int64_t length) {
  if (share.context == nullptr) return {{0, length}};
  return share.context->runs(length);
}

// Of these the ones whose activations it has between layers.
std::vector<exchange::IndexRun> own_tokens(const ModelShare& share, std::int64_t length) {
  const auto given = given_tokens(share, length);
  if (!share.tensor->options().sequence_parallel) return given;
  const auto part =
      exchange::part_of(exchange::count_of(given), share.tensor->size(), share.tensor->rank());
  return exchange::slice_of(given, part.first, part.count);
}

}  // namespace

Gpt::Gpt(const Flags& flags, ModelShare share)
    : share_(std::move(share)),
      dropout_(flags.dropout),
      seed_(flags.seed),
      is_tied_(!flags.untie_embeddings_and_output_weights),
      tokens_(own_tokens(share_, flags.seq_length)),
      seq_length_(flags.seq_length) {
  const int width = flags.hidden_size;
  const LayerSetting setting{share_.tensor, share_.context, dropout_, seed_, seq_length_, tokens_};
  if (share_.embeds || (share_.predicts && is_tied_)) {
    embedding_ = register_module("embedding", std::make_shared<nn::Module>());
    words_ = embedding_->register_module(
        "word_embeddings",
        std::make_shared<lt::VocabParallelEmbedding>(share_.tensor, kVocabulary, width));
  }
  if (share_.embeds) {
    positions_ =
        embedding_->register_module("position_embeddings", nn::Embedding(seq_length_, width));
    share_.tensor->mark_partial(*positions_);
  }
  auto decoder = register_module("decoder", std::make_shared<nn::Module>());
  auto layers = decoder->register_module("layers", std::make_shared<nn::Module>());
  for (const LayerRange& stage : share_.stages) {
    stages_.emplace_back();
    for (int i = stage.first; i < stage.first + stage.count; ++i)
      stages_.back().push_back(
          layers->register_module(std::to_string(i), std::make_shared<Block>(flags, setting, i)));
  }
  mask_ = torch::ones({seq_length_, seq_length_}, torch::kBool).triu(1);
  if (!share_.predicts) return;
  final_layernorm_ = decoder->register_module("final_layernorm", layer_norm(width));
  share_.tensor->mark_partial(*final_layernorm_);
  output_layer_ = register_module("output_layer", std::make_shared<nn::Module>());
  if (is_tied_) {
    head_ = output_layer_->register_parameter("weight", words_->weight);
    return;
  }
  const auto own = exchange::part_of(kVocabulary, share_.tensor->size(), share_.tensor->rank());
  head_ = output_layer_->register_parameter("weight", torch::empty({own.count, width}));
  share_.tensor->place(head_, lt::Placed::part_of({kVocabulary, width}, {kVocabulary, width}, 0,
                                                  own.first, own.count));
}

torch::Tensor Gpt::embed(const torch::Tensor& tokens, const PassFacts& pass) {
  const lt::WeightScope scope(pass.gates, *embedding_);
  Gate gate(pass.gates, *embedding_);
  const auto places = torch::tensor(exchange::indices_of(tokens_), torch::kLong).to(device());
  const LayerSetting setting{nullptr, nullptr, dropout_, seed_, seq_length_, tokens_};
  const auto x = scope.leave(words_->forward(tokens) + positions_->forward(places));
  return drop_activations(setting, x, kEmbeddingSite, pass, is_training());
}

torch::Tensor Gpt::transform(int virtual_stage, torch::Tensor x, const PassFacts& pass) {
  for (auto& block : stages_.at(static_cast<std::size_t>(virtual_stage)))
    x = block->forward(x, mask_, pass);
  return x;
}

torch::Tensor Gpt::logits(const torch::Tensor& x, const PassFacts& pass) {
  const lt::WeightScope norm(pass.gates, *final_layernorm_);
  Gate norm_gate(pass.gates, *final_layernorm_);
  const auto last = norm.leave(final_layernorm_->forward(norm.enter(x)));
  const lt::WeightScope head(pass.gates, *output_layer_);
  Gate head_gate(pass.gates, *output_layer_);
  return head.leave(lt::column_parallel_linear(share_.tensor, head.enter(last), head_, {}, queue_));
}

torch::Tensor Gpt::losses(const torch::Tensor& x, const torch::Tensor& labels,
                          const PassFacts& pass) {
  auto scores = logits(x, pass);
  if (share_.tensor->size() > 1)
    return lt::vocab_parallel_cross_entropy(share_.tensor, scores, labels, kVocabulary);
  if (scores.scalar_type() != torch::kDouble) scores = scores.to(torch::kFloat);
  return nn::functional::cross_entropy(
             scores.view({-1, kVocabulary}), labels.view(-1),
             nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone))
      .view(labels.sizes());
}

void Gpt::move_to(torch::Device device) {
  to(device);
  mask_ = mask_.to(device);
}

void Gpt::queue_weights(lt::WeightQueue* queue) {
  for (auto& stage : stages_)
    for (auto& block : stage) block->queue_weights(queue);
  queue_ = queue;
}

tutti::train::ParameterPlace Gpt::place_of(const torch::Tensor& parameter) const {
  const lt::Placed placed = share_.tensor->placed(parameter);
  tutti::train::ParameterPlace place;
  place.whole_shape = placed.whole_shape;
  place.box = {placed.whole, placed.first, placed.shape};
  place.counted = !placed.replicated || share_.tensor->rank() == 0;
  if (placed.partial) place.sum = Split::kTensorSum;
  // The embedding that the last stage has as its head is the first stage's, too.
  const bool shared = is_tied_ && share_.embeds != share_.predicts && words_ != nullptr &&
                      parameter.is_same(words_->weight);
  if (shared) {
    place.sum = Split::kEndsSum;
    place.counted = place.counted && share_.embeds;
  }
  return place;
}

// ---- values

std::shared_ptr<Gpt> make_model(const Flags& flags, ModelShare share) {
  auto model = std::make_shared<Gpt>(flags, std::move(share));
  torch::NoGradGuard no_grad;
  const double spread = 0.02;
  const double residual_spread = spread / std::sqrt(2.0 * flags.num_layers);
  const lt::TensorParallel& tensor = *model->share().tensor;
  for (auto& item : model->named_parameters()) {
    const std::string& name = item.key();
    torch::Tensor& value = item.value();
    const bool tied = name == "output_layer.weight" && !flags.untie_embeddings_and_output_weights;
    if (tied) continue;
    if (value.dim() < 2) {
      value.fill_(name.find("layernorm.weight") != std::string::npos ? 1.0 : 0.0);
      continue;
    }
    const bool residual = name.find("linear_proj") != std::string::npos ||
                          name.find("linear_fc2") != std::string::npos;
    lt::fill_normal(value, tensor.placed(value), flags.seed, name,
                    residual ? residual_spread : spread);
  }
  if (flags.bf16) model->to(torch::kBFloat16);
  model->move_to(device_of(flags));
  return model;
}

ModelBatch cut_batch(const Gpt& model, const TokenBatch& batch, int sequences) {
  const auto length = static_cast<std::int64_t>(batch.tokens.size()) / sequences;
  const auto runs = given_tokens(model.share(), length);
  const auto rows = [&]<class T>(const std::vector<T>& values, torch::ScalarType type) {
    auto own = exchange::take_runs<T>(values, length, runs);
    return torch::tensor(own, type).view({sequences, -1}).to(model.device());
  };
  ModelBatch cut;
  cut.tokens = rows(batch.tokens, torch::kLong);
  cut.labels = rows(batch.labels, torch::kLong);
  cut.loss_mask = rows(batch.loss_mask, torch::kFloat);
  for (const float counts : exchange::take_runs<float>(batch.loss_mask, length, runs))
    cut.counted += counts != 0 ? 1 : 0;
  return cut;
}

torch::Tensor loss_sum(Gpt& model, const ModelBatch& batch, const PassFacts& pass) {
  const auto x = model.transform(0, model.embed(batch.tokens, pass), pass);
  return (model.losses(x, batch.labels, pass) * batch.loss_mask).sum();
}

bool is_block(const torch::nn::Module& module) {
  return dynamic_cast<const Block*>(&module) != nullptr;
}

int parameter_group(const std::string&, const torch::Tensor& value) {
  return value.dim() < 2 ? 1 : 0;
}

}  // namespace pretrain
