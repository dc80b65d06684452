#include "layers.hpp"

#include <cmath>

#include "lean.hpp"
#include "recompute.hpp"
#include "tutti/libtorch/half_on_cpu.hpp"
#include "tutti/libtorch/recompute.hpp"

namespace pretrain {

namespace nn = torch::nn;
namespace exchange = tutti::exchange;
namespace lt = tutti::libtorch;
using lt::Gate;
using lt::HeldIndices;
using lt::SharedTensorParallel;

namespace {

constexpr std::uint32_t kSitesOfLayer = 3;
enum class Site : std::uint32_t { probabilities = 1, attention = 2, mlp = 3 };
std::uint32_t site_of(int layer, Site site) {
  return static_cast<std::uint32_t>(layer) * kSitesOfLayer + static_cast<std::uint32_t>(site);
}

lt::DropoutKey key_of(const LayerSetting& setting, std::uint32_t site, const PassFacts& pass) {
  return {setting.seed, pass.step, pass.micro_batch, site};
}

}  // namespace

torch::Tensor drop_activations(const LayerSetting& setting, const torch::Tensor& x,
                               std::uint32_t site, const PassFacts& pass, bool training) {
  if (setting.dropout == 0 || !training) return x;
  return lt::dropout(x, setting.dropout, key_of(setting, site, pass),
                     {lt::held_all(x.size(0)), HeldIndices{setting.seq_length, setting.own_tokens},
                      lt::held_all(x.size(2))});
}

// ---- norms

Norm::Norm(const Flags& flags)
    : centred_(flags.normalization == kLayerNorm), epsilon_(flags.norm_epsilon) {
  weight_ = register_parameter("weight", torch::empty({flags.hidden_size}));
  if (centred_) bias_ = register_parameter("bias", torch::empty({flags.hidden_size}));
}

torch::Tensor Norm::forward(const torch::Tensor& x) const {
  if (centred_)
    return lt::in_f32_on_cpu(x, [&](const torch::Tensor& wide) {
      return torch::layer_norm(wide, weight_.sizes(), lt::widened_on_cpu(weight_),
                               lt::widened_on_cpu(bias_), epsilon_);
    });
  return rms_norm(x, weight_, epsilon_);
}

// ---- attention

// A query head for each key and value, or several that share them: grouped queries. The features of linear_qkv are
// then, for each group, its query heads, its key and its value: a rank has whole groups.
class Attention : public nn::Module {
 public:
  Attention(const Flags& flags, const LayerSetting& setting, int layer)
      : setting_(setting),
        layer_(layer),
        heads_(flags.num_attention_heads),
        groups_(flags.query_groups()),
        again_(flags.recompute_granularity == kSelective) {
    const std::int64_t width = flags.hidden_size;
    const std::int64_t head = width / heads_;
    const lt::Features fused = shares_keys()
                                   ? lt::Features{{groups_, heads_ / groups_ + 2, head}, 0}
                                   : lt::Features{{3, heads_, head}, 1};
    const auto define_qkv = [&] {
      linear_qkv =
          register_module("linear_qkv", std::make_shared<lt::ColumnParallelLinear>(
                                            setting.tensor, width, fused, flags.has_bias()));
    };
    if (!flags.shuffle_definition_order) define_qkv();
    linear_proj = register_module(
        "linear_proj",
        std::make_shared<lt::RowParallelLinear>(setting.tensor, lt::Features{{heads_, head}, 0},
                                                width, flags.has_bias()));
    if (flags.shuffle_definition_order) define_qkv();
  }

  torch::Tensor forward(const torch::Tensor& x, const SequenceTables& tables,
                        const PassFacts& pass) {
    Gate qkv_gate(pass.gates, *linear_qkv);
    Heads own = heads_of(linear_qkv->forward(x));
    own.query = tables.rotary.turn(own.query);
    own.key = tables.rotary.turn(own.key);
    const auto mixed = setting_.context != nullptr ? attend_together(own, pass)
                       : again_                    ? attend_again(own, tables.mask, pass)
                                                   : attend_alone(own, tables.mask, pass);
    Gate proj_gate(pass.gates, *linear_proj);
    return linear_proj->forward(mixed.transpose(1, 2).reshape({x.size(0), mixed.size(2), -1}));
  }

  std::shared_ptr<lt::ColumnParallelLinear> linear_qkv;
  std::shared_ptr<lt::RowParallelLinear> linear_proj;

 private:
  struct Heads {
    torch::Tensor query, key, value;  // [b, this rank's heads or groups, s, d]
  };

  bool shares_keys() const { return groups_ != heads_; }
  bool drops() const { return setting_.dropout > 0 && is_training(); }
  HeldIndices own_heads() const {
    return {heads_, {exchange::part_of(heads_, setting_.tensor->size(), setting_.tensor->rank())}};
  }

  Heads heads_of(const torch::Tensor& fused) const {
    const auto b = fused.size(0), s = fused.size(1);
    const auto heads = heads_ / setting_.tensor->size(), groups = groups_ / setting_.tensor->size();
    if (!shares_keys()) {
      // [b, s, 3h'] -> 3 of [b, heads', s, d]
      const auto parts = fused.view({b, s, 3, heads, -1}).permute({2, 0, 3, 1, 4});
      return {parts[0], parts[1], parts[2]};
    }
    // [b, s, groups', queries + 2, d]
    const std::int64_t queries = heads_ / groups_;
    const auto parts = fused.view({b, s, groups, queries + 2, -1});
    return {parts.narrow(3, 0, queries).reshape({b, s, heads, -1}).transpose(1, 2),
            parts.select(3, queries).transpose(1, 2), parts.select(3, queries + 1).transpose(1, 2)};
  }

  torch::Tensor attend_alone(const Heads& own, const torch::Tensor& mask,
                             const PassFacts& pass) const {
    return lt::in_f32_on_cpu(own.query, [&](const torch::Tensor& query) {
      return attend({query, lt::widened_on_cpu(own.key), lt::widened_on_cpu(own.value)}, mask,
                    pass);
    });
  }

  torch::Tensor attend(const Heads& own, const torch::Tensor& mask, const PassFacts& pass) const {
    const std::int64_t queries = heads_ / groups_;
    const auto key = queries == 1 ? own.key : own.key.repeat_interleave(queries, 1);
    const auto value = queries == 1 ? own.value : own.value.repeat_interleave(queries, 1);
    const auto s = own.query.size(2);
    auto scores = torch::matmul(own.query, key.transpose(-2, -1)) /
                  std::sqrt(static_cast<double>(own.query.size(3)));
    scores = scores.masked_fill(mask.slice(0, 0, s).slice(1, 0, s), -1e4);
    auto weights = torch::softmax(scores, -1);
    if (drops())
      weights = lt::dropout(
          weights, setting_.dropout, key_of(setting_, site_of(layer_, Site::probabilities), pass),
          {lt::held_all(weights.size(0)), own_heads(), lt::held_all(s), lt::held_all(s)});
    return torch::matmul(weights, value);
  }

  // Scores and softmax are not kept: backward computes them once more.
  torch::Tensor attend_again(const Heads& own, const torch::Tensor& mask,
                             const PassFacts& pass) const {
    const auto again = [this, mask, pass](const std::vector<torch::Tensor>& heads) {
      return std::vector<torch::Tensor>{attend_alone({heads[0], heads[1], heads[2]}, mask, pass)};
    };
    return lt::recompute(again, {own.query, own.key, own.value}, {.keeps_random_state = false})[0];
  }

  // With the ranks that have the rest of the sequence. Of blocks no scores are kept anyway.
  torch::Tensor attend_together(const Heads& own, const PassFacts& pass) const {
    lt::AttentionOptions options;
    options.length = setting_.seq_length;
    options.dropout = drops() ? setting_.dropout : 0;
    options.key = key_of(setting_, site_of(layer_, Site::probabilities), pass);
    options.heads = own_heads();
    return lt::attention(setting_.context, own.query, own.key, own.value, options);
  }

  LayerSetting setting_;
  int layer_;
  std::int64_t heads_, groups_;
  bool again_;
};

// ---- MLP

// gelu(fc1), or silu(gate) · up, whose features are those of the gate, then those of the other.
class Mlp : public nn::Module {
 public:
  Mlp(const Flags& flags, const SharedTensorParallel& tensor) : gated_(flags.swiglu) {
    const std::int64_t width = flags.hidden_size, inner = flags.ffn();
    linear_fc1 = register_module(
        "linear_fc1",
        std::make_shared<lt::ColumnParallelLinear>(
            tensor, width, gated_ ? lt::Features{{2, inner}, 1} : lt::Features{{inner}},
            flags.has_bias()));
    linear_fc2 =
        register_module("linear_fc2", std::make_shared<lt::RowParallelLinear>(
                                          tensor, lt::Features{{inner}}, width, flags.has_bias()));
  }

  torch::Tensor forward(const torch::Tensor& x, const PassFacts& pass) {
    Gate first(pass.gates, *linear_fc1);
    const auto wide = activated(linear_fc1->forward(x));
    Gate second(pass.gates, *linear_fc2);
    return linear_fc2->forward(wide);
  }

  std::shared_ptr<lt::ColumnParallelLinear> linear_fc1;
  std::shared_ptr<lt::RowParallelLinear> linear_fc2;

 private:
  torch::Tensor activated(const torch::Tensor& x) const {
    return lt::in_f32_on_cpu(x, [&](const torch::Tensor& wide) {
      return gated_ ? gated_silu(wide) : torch::gelu(wide);
    });
  }

  bool gated_;
};

// ---- the layer

Block::Block(const Flags& flags, const LayerSetting& setting, int layer)
    : setting_(setting), layer_(layer) {
  input_layernorm_ = register_module("input_layernorm", std::make_shared<Norm>(flags));
  self_attention_ =
      register_module("self_attention", std::make_shared<Attention>(flags, setting, layer));
  pre_mlp_layernorm_ = register_module("pre_mlp_layernorm", std::make_shared<Norm>(flags));
  mlp_ = register_module("mlp", std::make_shared<Mlp>(flags, setting.tensor));
  setting.tensor->mark_partial(*input_layernorm_);
  setting.tensor->mark_partial(*pre_mlp_layernorm_);
}

torch::Tensor Block::forward(torch::Tensor x, const SequenceTables& tables, const PassFacts& pass) {
  const auto drop = [&](const torch::Tensor& part, Site site) {
    return drop_activations(setting_, part, site_of(layer_, site), pass, is_training());
  };
  const lt::WeightScope scope(pass.gates, *this);
  x = scope.enter(x);
  Gate first(pass.gates, *input_layernorm_);
  x = x +
      drop(self_attention_->forward(input_layernorm_->forward(x), tables, pass), Site::attention);
  Gate second(pass.gates, *pre_mlp_layernorm_);
  return scope.leave(x + drop(mlp_->forward(pre_mlp_layernorm_->forward(x), pass), Site::mlp));
}

void Block::queue_weights(lt::WeightQueue* queue) {
  self_attention_->linear_qkv->queue = self_attention_->linear_proj->queue = queue;
  mlp_->linear_fc1->queue = mlp_->linear_fc2->queue = queue;
}

}  // namespace pretrain
