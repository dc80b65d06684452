// However pretrain_gpt's model is split over ranks, its loss and its gradients are those of one process, in f64.
#include <cmath>
#include <map>
#include <utility>

#include "adapter_support.hpp"
#include "data.hpp"
#include "flags.hpp"
#include "model.hpp"
#include "shape.hpp"
#include "split.hpp"
#include "tutti/libtorch/placed.hpp"

namespace pretrain {
namespace {

constexpr int kSequences = 2;

// GPT's parts, or Llama's with two query heads for each key.
enum class Parts { gpt, llama };

Flags model_flags(Parts parts = Parts::gpt) {
  Flags flags;
  if (parts == Parts::llama) {
    flags.position_embedding_type = kRope;
    flags.normalization = kRmsNorm;
    flags.swiglu = flags.disable_bias_linear = flags.group_query_attention = true;
    flags.untie_embeddings_and_output_weights = true;
    flags.num_query_groups = 4;
    flags.ffn_hidden_size = 24;
  }
  flags.num_layers = 2;
  flags.hidden_size = 16;
  flags.num_attention_heads = 8;
  flags.seq_length = 32;
  flags.data_path = {"/usr/share/common-licenses/BSD"};
  flags.eod_mask_loss = true;
  return flags;
}

// Of a split model: its axes and settings, as the command line has them.
struct SplitCase {
  std::string name;
  Flags flags;
  Parts parts = Parts::gpt;
};

SplitCase split_case(int tp, int cp, bool sequence = false, bool overlap = false,
                     const std::string& exchange = "p2p", int window = 0) {
  SplitCase made;
  made.flags = model_flags();
  made.flags.tensor_parallel = tp;
  made.flags.context_parallel = cp;
  made.flags.sequence_parallel = sequence;
  made.flags.tp_comm_overlap = overlap;
  made.flags.cp_comm_type = exchange;
  made.flags.cp_window_size = window;
  if (exchange == "a2a+p2p") made.flags.hierarchical_cp_sizes = {2, cp / 2};
  made.name = "tp_" + std::to_string(tp) + "_cp_" + std::to_string(cp);
  if (sequence) made.name += overlap ? "_overlap" : "_sequence";
  if (cp > 1) made.name += "_" + (exchange == "a2a+p2p" ? "a2a_p2p" : exchange);
  if (window > 0) made.name += "_window_" + std::to_string(window);
  return made;
}

SplitCase of_llama(SplitCase made) {
  const Flags llama = model_flags(Parts::llama);
  Flags flags = llama;
  flags.tensor_parallel = made.flags.tensor_parallel;
  flags.context_parallel = made.flags.context_parallel;
  flags.sequence_parallel = made.flags.sequence_parallel;
  flags.tp_comm_overlap = made.flags.tp_comm_overlap;
  flags.cp_comm_type = made.flags.cp_comm_type;
  return {"llama_" + made.name, flags, Parts::llama};
}

std::vector<SplitCase> split_cases() {
  return {of_llama(split_case(4, 1, true, true)),
          of_llama(split_case(1, 4)),
          of_llama(split_case(2, 2, true, false, "a2a")),
          split_case(2, 1),
          split_case(8, 1, true),
          split_case(4, 1, true, true),
          split_case(1, 2),
          split_case(1, 8),
          split_case(1, 4, false, false, "p2p", 2),
          split_case(1, 4, false, false, "allgather"),
          split_case(1, 8, false, false, "a2a"),
          split_case(1, 4, false, false, "a2a+p2p"),
          split_case(2, 2, false),
          split_case(2, 4, true, true, "a2a"),
          split_case(4, 2, true, false, "allgather")};
}

struct Gradients {
  double loss = 0;
  std::map<std::string, torch::Tensor> values;  // by the whole model's names
  std::map<std::string, tutti::libtorch::Placed> placed;
};

// Forward and backward of one micro-batch on one rank's share.
Gradients gradients_of(const Flags& flags, ModelShare share) {
  auto data = Data::open(flags);
  EXPECT_TRUE(data.ok()) << data.status().to_string();
  auto model = make_model(flags, std::move(share));
  model->to(torch::kDouble);
  const ModelBatch batch = cut_batch(*model, *data->training(7, kSequences), kSequences);
  const auto loss = loss_sum(*model, batch, {});
  loss.backward();
  Gradients made;
  made.loss = loss.item<double>();
  for (const auto& item : model->named_parameters()) {
    made.values[item.key()] = item.value().grad();
    made.placed[item.key()] = model->share().tensor->placed(item.value());
  }
  return made;
}

class Layouts : public testing::TestWithParam<SplitCase> {};

TEST_P(Layouts, have_the_gradients_of_one_process) {
  const Flags whole = model_flags(GetParam().parts);
  const Gradients expected = gradients_of(whole, whole_share(whole));
  const Flags& flags = GetParam().flags;
  const int ranks = flags.tensor_parallel * flags.context_parallel;
  std::vector<Gradients> parts(static_cast<std::size_t>(ranks));
  std::vector<char> first_of_tensor(parts.size());  // not bool, whose neighbours share a word
  adapter_test::on_ranks(ranks, [&](std::shared_ptr<tutti::Group> group) {
    auto split = Split::create(group, flags);
    ASSERT_TRUE(split.ok()) << split.status().to_string();
    auto share = share_of(flags, *split);
    ASSERT_TRUE(share.ok()) << share.status().to_string();
    const auto rank = static_cast<std::size_t>(group->rank());
    parts[rank] = gradients_of(flags, *std::move(share));
    first_of_tensor[rank] = split->tp_rank() == 0;
  });
  double loss = 0;
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    if (first_of_tensor[rank]) loss += parts[rank].loss;
  EXPECT_NEAR(loss, expected.loss, 1e-10 * expected.loss);
  for (const auto& [name, wanted] : expected.values) {
    torch::Tensor sum = torch::zeros_like(wanted);
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      const tutti::libtorch::Placed& placed = parts[rank].placed.at(name);
      // What all tensor-parallel ranks have the whole gradient of counts once.
      if (placed.replicated && !placed.partial && !first_of_tensor[rank]) continue;
      tutti::libtorch::box_of(sum, placed).add_(parts[rank].values.at(name).view(placed.shape));
    }
    const double scale = std::max(1.0, wanted.abs().max().item<double>());
    EXPECT_LE((sum - wanted).abs().max().item<double>(), 1e-10 * scale) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Split, Layouts, testing::ValuesIn(split_cases()),
                         [](const auto& info) { return info.param.name; });

// ---- Llama's parts beside a plain implementation

// The same model from its weights alone, written down as its paper has it: a token, a head at a time.
class PlainLlama {
 public:
  PlainLlama(const Flags& flags, const Gpt& model) : flags_(flags) {
    for (const auto& item : model.named_parameters()) weights_[item.key()] = item.value().detach();
  }

  // [s] -> [s, vocabulary]
  torch::Tensor logits(const torch::Tensor& tokens) const {
    auto x = weight("embedding.word_embeddings.weight").index_select(0, tokens);
    for (int i = 0; i < flags_.num_layers; ++i) {
      const std::string layer = "decoder.layers." + std::to_string(i) + ".";
      x = x + attention(layer, norm(x, layer + "input_layernorm.weight"));
      x = x + mlp(layer, norm(x, layer + "pre_mlp_layernorm.weight"));
    }
    return norm(x, "decoder.final_layernorm.weight").matmul(weight("output_layer.weight").t());
  }

 private:
  const torch::Tensor& weight(const std::string& name) const { return weights_.at(name); }

  torch::Tensor norm(const torch::Tensor& x, const std::string& name) const {
    const auto size = (x * x).sum(-1, true) / x.size(-1);
    return x / (size + flags_.norm_epsilon).sqrt() * weight(name);
  }

  // [s, d], turned pair by pair.
  torch::Tensor turned(const torch::Tensor& x) const {
    auto out = torch::empty_like(x);
    const auto half = x.size(1) / 2;
    for (std::int64_t at = 0; at < x.size(0); ++at)
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(at) * std::pow(flags_.rotary_base, -double(i) / double(half));
        out[at][i] = x[at][i] * std::cos(angle) - x[at][i + half] * std::sin(angle);
        out[at][i + half] = x[at][i + half] * std::cos(angle) + x[at][i] * std::sin(angle);
      }
    return out;
  }

  torch::Tensor attention(const std::string& layer, const torch::Tensor& x) const {
    const auto d = flags_.hidden_size / flags_.num_attention_heads;
    const auto each = flags_.num_attention_heads / flags_.num_query_groups;
    const auto all = x.matmul(weight(layer + "self_attention.linear_qkv.weight").t());
    const auto hidden = torch::ones({x.size(0), x.size(0)}, torch::kBool).triu(1);
    std::vector<torch::Tensor> heads;
    for (int group = 0; group < flags_.num_query_groups; ++group) {
      const auto part = [&](int which) {
        return all.narrow(1, (group * (each + 2) + which) * d, d);
      };
      const auto key = turned(part(each)), value = part(each + 1);
      for (int which = 0; which < each; ++which) {
        const auto scores = turned(part(which)).matmul(key.t()) / std::sqrt(double(d));
        heads.push_back(scores.masked_fill(hidden, -1e300).softmax(-1).matmul(value));
      }
    }
    return torch::cat(heads, 1).matmul(weight(layer + "self_attention.linear_proj.weight").t());
  }

  torch::Tensor mlp(const std::string& layer, const torch::Tensor& x) const {
    const auto both = x.matmul(weight(layer + "mlp.linear_fc1.weight").t());
    const auto gate = both.narrow(1, 0, flags_.ffn()),
               up = both.narrow(1, flags_.ffn(), flags_.ffn());
    return (gate / (1 + (-gate).exp()) * up).matmul(weight(layer + "mlp.linear_fc2.weight").t());
  }

  Flags flags_;
  std::map<std::string, torch::Tensor> weights_;
};

TEST(Llama, has_the_losses_of_a_plain_implementation) {
  for (const auto& [type, bound] : {std::pair{torch::kDouble, 1e-9}, {torch::kFloat, 1e-4}}) {
    const Flags flags = model_flags(Parts::llama);
    auto data = Data::open(flags);
    ASSERT_TRUE(data.ok()) << data.status().to_string();
    auto model = make_model(flags, whole_share(flags));
    model->to(torch::kDouble);
    torch::NoGradGuard no_grad;
    // First values are small: attention and gates would hardly count.
    for (auto& parameter : model->parameters()) parameter.mul_(parameter.dim() == 1 ? 1.5 : 10);
    const PlainLlama plain(flags, *model);
    model->to(type);
    const ModelBatch batch = cut_batch(*model, *data->training(3, kSequences), kSequences);
    const auto losses =
        model->losses(model->transform(0, model->embed(batch.tokens, {}), {}), batch.labels, {});
    for (int i = 0; i < kSequences; ++i) {
      const auto wanted = torch::nn::functional::cross_entropy(
          plain.logits(batch.tokens[i]), batch.labels[i],
          torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
      EXPECT_GT(wanted.std().item<double>(), 0.1);
      EXPECT_LE((losses[i].to(torch::kDouble) - wanted).abs().max().item<double>(), bound);
    }
  }
}

TEST(OwnLoss, takes_the_place_of_cross_entropy) {
  const Flags flags = model_flags();
  auto data = Data::open(flags);
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  auto model = make_model(flags, whole_share(flags));
  const ModelBatch batch = cut_batch(*model, *data->training(3, kSequences), kSequences);
  torch::NoGradGuard no_grad;
  const auto x = model->transform(0, model->embed(batch.tokens, {}), {});
  const auto own = [](const torch::Tensor& scores, const torch::Tensor& labels) {
    return scores.gather(-1, labels.unsqueeze(-1)).squeeze(-1) * 3;
  };
  const auto plain = model->losses(x, batch.labels, {});
  model->set_loss(own);
  EXPECT_TRUE(
      torch::equal(model->losses(x, batch.labels, {}), own(model->logits(x, {}), batch.labels)));
  model->set_loss([](const torch::Tensor& scores, const torch::Tensor&) { return scores.sum(); });
  EXPECT_THROW(model->losses(x, batch.labels, {}), c10::Error);
  model->set_loss({});
  EXPECT_TRUE(torch::equal(model->losses(x, batch.labels, {}), plain));
}

// ---- which layers a stage has

std::vector<int> counts_of(int layers, int places, int first, int last) {
  Flags flags = model_flags();
  flags.num_layers = layers;
  flags.first_stage_layers = first;
  flags.last_stage_layers = last;
  std::vector<int> counts;
  int next = 0;
  for (const LayerRange& range : layers_of_places(flags, places)) {
    EXPECT_EQ(range.first, next);
    next += range.count;
    counts.push_back(range.count);
  }
  EXPECT_EQ(next, layers);
  return counts;
}

TEST(Stages, share_the_layers_out_evenly_unless_the_ends_are_given) {
  EXPECT_EQ(counts_of(8, 4, 0, 0), (std::vector<int>{2, 2, 2, 2}));
  EXPECT_EQ(counts_of(10, 4, 0, 0), (std::vector<int>{3, 3, 2, 2}));
  EXPECT_EQ(counts_of(8, 3, 1, 0), (std::vector<int>{1, 4, 3}));
  EXPECT_EQ(counts_of(9, 4, 1, 2), (std::vector<int>{1, 3, 3, 2}));
  EXPECT_EQ(counts_of(5, 1, 0, 0), (std::vector<int>{5}));
}

TEST(Splits, that_do_not_fit_name_the_flag) {
  const auto refusal = [](int ranks, const std::function<void(Flags&)>& change) {
    Flags flags = model_flags();
    change(flags);
    return split_sizes(flags, ranks).status().message();
  };
  EXPECT_NE(refusal(6, [](Flags& f) { f.tensor_parallel = 4; }).find("6 ranks"), std::string::npos);
  EXPECT_NE(refusal(3, [](Flags& f) { f.tensor_parallel = 3; }).find("--num-attention-heads 8"),
            std::string::npos);
  EXPECT_NE(refusal(8,
                    [](Flags& f) {
                      f.context_parallel = 8;
                      f.seq_length = 24;
                    })
                .find("--seq-length 24"),
            std::string::npos);
  EXPECT_NE(refusal(4, [](Flags& f) { f.pipeline_parallel = 4; }).find("--num-layers 2"),
            std::string::npos);
  EXPECT_NE(refusal(2,
                    [](Flags& f) {
                      f.pipeline_parallel = 2;
                      f.on_failure = kShrink;
                    })
                .find("--on-failure shrink"),
            std::string::npos);
  EXPECT_EQ(refusal(8, [](Flags& f) { f.tensor_parallel = 2; }), "");
}

// ---- what is computed again in backward

constexpr int kDeep = 3;  // layers: chunks of two leave one

// Ways to recompute, by Megatron's flags.
struct Again {
  std::string name, granularity, method;
  int layers = 0;

  Flags on(Flags flags) const {
    flags.num_layers = kDeep;
    flags.dropout = 0.2;
    flags.recompute_granularity = granularity;
    flags.recompute_method = method;
    flags.recompute_num_layers = layers;
    return flags;
  }
};

std::vector<Again> ways_again() {
  return {{"selective", kSelective, "", 0},
          {"uniform_1", kFull, kUniform, 1},
          {"uniform_2", kFull, kUniform, 2},
          {"block_2", kFull, kBlock, 2}};
}

void expect_equal(const Gradients& got, const Gradients& wanted, const std::string& what) {
  EXPECT_EQ(got.loss, wanted.loss) << what;
  for (const auto& [name, value] : wanted.values)
    EXPECT_TRUE(torch::equal(got.values.at(name), value)) << what << ": " << name;
}

class Recomputed : public testing::TestWithParam<Again> {};

TEST_P(Recomputed, layers_have_the_gradients_of_kept_ones_to_the_bit) {
  for (const Parts parts : {Parts::gpt, Parts::llama}) {
    const Flags kept = Again().on(model_flags(parts)), again = GetParam().on(model_flags(parts));
    ASSERT_TRUE(check_flags(again).ok()) << check_flags(again).message();
    expect_equal(gradients_of(again, whole_share(again)), gradients_of(kept, whole_share(kept)),
                 "whole");
  }
}

TEST_P(Recomputed, layers_exchange_again_what_split_ones_exchange) {
  for (const SplitCase& one : {split_case(4, 1, true, true), split_case(2, 2, false),
                               split_case(1, 4, false, false, "a2a+p2p")}) {
    adapter_test::on_ranks(4, [&](std::shared_ptr<tutti::Group> group) {
      const auto made = [&](const Flags& flags) {
        auto split = Split::create(group, flags);
        EXPECT_TRUE(split.ok()) << split.status().to_string();
        auto share = share_of(flags, *split);
        EXPECT_TRUE(share.ok()) << share.status().to_string();
        return gradients_of(flags, *std::move(share));
      };
      const Gradients kept = made(Again().on(one.flags));
      expect_equal(made(GetParam().on(one.flags)), kept, one.name);
    });
  }
}

// Counts the bytes of tensors that one thread makes.
class LiveBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t bytes, std::int64_t, std::int64_t,
                         c10::Device) override {
    now_ += bytes;
    most_ = std::max(most_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t most() const { return most_; }

 private:
  std::int64_t now_ = 0, most_ = 0;
};

// At most, beside what the model keeps and the gradients of its parameters.
double most_bytes(Flags flags) {
  flags.hidden_size = 64;
  flags.seq_length = 128;
  flags.num_layers = 6;
  flags.dropout = 0;
  flags.vocab_size = kByteVocabulary;
  auto data = Data::open(flags);
  EXPECT_TRUE(data.ok()) << data.status().to_string();
  auto model = make_model(flags, whole_share(flags));
  double kept = 0;
  for (auto& parameter : model->parameters()) {
    parameter.mutable_grad() = torch::zeros_like(parameter);
    kept += static_cast<double>(parameter.nbytes());
  }
  const ModelBatch batch = cut_batch(*model, *data->training(7, kSequences), kSequences);
  const auto live = std::make_shared<LiveBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
  loss_sum(*model, batch, {}).backward();
  return static_cast<double>(live->most());
}

double planned_bytes(Flags flags) {
  flags.hidden_size = 64;
  flags.seq_length = 128;
  flags.num_layers = 6;
  flags.vocab_size = kByteVocabulary;
  flags.dropout = 0;
  const auto shape = shape_of(flags);
  EXPECT_TRUE(shape.ok()) << shape.status().to_string();
  return tutti::plan::replica_memory(*shape, {.micro_batch = kSequences,
                                              .seq = flags.seq_length,
                                              .recompute = recompute_shape(flags)})
      .activations;
}

// Beside what passes through anyway: the same for all.
TEST_P(Recomputed, layers_save_the_memory_that_the_plan_says) {
  const Flags again = GetParam().on(model_flags()), kept = Again().on(model_flags());
  const double saved = most_bytes(kept) - most_bytes(again);
  const double planned = planned_bytes(kept) - planned_bytes(again);
  EXPECT_NEAR(saved / planned, 1, 0.1) << saved << " bytes saved, " << planned << " planned";
}

INSTANTIATE_TEST_SUITE_P(Ways, Recomputed, testing::ValuesIn(ways_again()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pretrain
