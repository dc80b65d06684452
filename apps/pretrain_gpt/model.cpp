#include "model.hpp"

#include <cmath>

#include "device.hpp"
#include "tutti/libtorch/recompute.hpp"

namespace pretrain {

namespace nn = torch::nn;
namespace exchange = tutti::exchange;
namespace lt = tutti::libtorch;
using lt::Gate;
using tutti::Result;
using tutti::Status;

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
      seq_length_(flags.seq_length),
      vocabulary_(flags.vocabulary()) {
  const int width = flags.hidden_size;
  const LayerSetting setting{share_.tensor, share_.context, dropout_, seed_, seq_length_, tokens_};
  if (share_.embeds || (share_.predicts && is_tied_)) {
    embedding_ = register_module("embedding", std::make_shared<nn::Module>());
    words_ = embedding_->register_module(
        "word_embeddings",
        std::make_shared<lt::VocabParallelEmbedding>(share_.tensor, vocabulary_, width));
  }
  if (share_.embeds && !flags.has_rotary()) {
    positions_ =
        embedding_->register_module("position_embeddings", nn::Embedding(seq_length_, width));
    share_.tensor->mark_partial(*positions_);
  }
  auto decoder = register_module("decoder", std::make_shared<nn::Module>());
  auto layers = decoder->register_module("layers", std::make_shared<nn::Module>());
  for (const LayerRange& stage : share_.stages) {
    stages_.emplace_back();
    chunks_.push_back(chunks_of(flags, stage.count));
    for (int i = stage.first; i < stage.first + stage.count; ++i)
      stages_.back().push_back(
          layers->register_module(std::to_string(i), std::make_shared<Block>(flags, setting, i)));
  }
  tables_.mask = torch::ones({seq_length_, seq_length_}, torch::kBool).triu(1);
  if (flags.has_rotary())
    tables_.rotary =
        Rotary(exchange::indices_of(given_tokens(share_, seq_length_)),
               width / flags.num_attention_heads, flags.rotary_base, flags.rope_scaling);
  if (!share_.predicts) return;
  final_layernorm_ = decoder->register_module("final_layernorm", std::make_shared<Norm>(flags));
  share_.tensor->mark_partial(*final_layernorm_);
  output_layer_ = register_module("output_layer", std::make_shared<nn::Module>());
  if (is_tied_) {
    head_ = output_layer_->register_parameter("weight", words_->weight);
    return;
  }
  const auto own = exchange::part_of(vocabulary_, share_.tensor->size(), share_.tensor->rank());
  head_ = output_layer_->register_parameter("weight", torch::empty({own.count, width}));
  share_.tensor->place(head_, lt::Placed::part_of({vocabulary_, width}, {vocabulary_, width}, 0,
                                                  own.first, own.count));
}

torch::Tensor Gpt::embed(const torch::Tensor& tokens, const PassFacts& pass) {
  const lt::WeightScope scope(pass.gates, *embedding_);
  Gate gate(pass.gates, *embedding_);
  auto x = words_->forward(tokens);
  if (!positions_.is_empty()) {
    const auto places = torch::tensor(exchange::indices_of(tokens_), torch::kLong).to(device());
    x = x + positions_->forward(places);
  }
  x = scope.leave(x);
  const LayerSetting setting{nullptr, nullptr, dropout_, seed_, seq_length_, tokens_};
  return drop_activations(setting, x, kEmbeddingSite, pass, is_training());
}

torch::Tensor Gpt::transform(int virtual_stage, torch::Tensor x, const PassFacts& pass) {
  const auto& blocks = stages_.at(static_cast<std::size_t>(virtual_stage));
  for (const LayerChunk& chunk : chunks_.at(static_cast<std::size_t>(virtual_stage))) {
    const auto run = [this, &blocks, chunk, pass](torch::Tensor y) {
      for (int i = chunk.first; i < chunk.first + chunk.count; ++i)
        y = blocks[static_cast<std::size_t>(i)]->forward(y, tables_, pass);
      return y;
    };
    x = chunk.again ? lt::recompute(run, x, {.keeps_random_state = false}) : run(x);
  }
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
    return lt::vocab_parallel_cross_entropy(share_.tensor, scores, labels, vocabulary_);
  if (scores.scalar_type() != torch::kDouble) scores = scores.to(torch::kFloat);
  if (loss_) {
    auto losses = loss_(scores, labels);
    TORCH_CHECK(losses.sizes() == labels.sizes(), "a loss for each token is ", labels.sizes(),
                ", and the one that was given makes ", losses.sizes());
    return losses;
  }
  return nn::functional::cross_entropy(
             scores.view({-1, vocabulary_}), labels.view(-1),
             nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone))
      .view(labels.sizes());
}

void Gpt::move_to(torch::Device device) {
  to(device);
  tables_.mask = tables_.mask.to(device);
  tables_.rotary.move_to(device);
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

torch::ScalarType torch_type(tutti::Dtype dtype) {
  switch (dtype) {
    case tutti::Dtype::f16: return torch::kHalf;
    case tutti::Dtype::bf16: return torch::kBFloat16;
    default: return torch::kFloat;
  }
}

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
  if (weight_dtype(flags) != tutti::Dtype::f32) model->to(torch_type(weight_dtype(flags)));
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
