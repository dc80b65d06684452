#include "tool/plan/model_flags.hpp"

#include "core/words.hpp"
#include "tool/numbers.hpp"
#include "tool/plan/read_cluster.hpp"

namespace tutti::tool::plan {
namespace {

constexpr std::int64_t kMostWidth = 1 << 30;
constexpr std::int64_t kMostTokens = 1 << 30;

}  // namespace

void add_model_flags(CLI::App& app, ModelWords& words) {
  const char* group = "Model";
  planner::Model& shape = words.shape;
  app.add_option("--preset", words.preset, "llama2-70b, gpt3-175b, …: a wrong one lists all")
      ->group(group);
  app.add_option("--layers", shape.layers, "transformer layers")
      ->check(between(1, 100'000))
      ->group(group);
  app.add_option("--hidden", shape.hidden, "width")->check(between(1, kMostWidth))->group(group);
  app.add_option("--heads", shape.heads, "attention heads")
      ->check(between(1, kMostWidth))
      ->group(group);
  app.add_option("--kv-heads", shape.kv_heads, "of keys and values (default: --heads)")
      ->check(between(1, kMostWidth))
      ->group(group);
  app.add_option("--head-dim", shape.head_dim, "width of a head (default: hidden / heads)")
      ->check(between(1, kMostWidth))
      ->group(group);
  app.add_option("--ffn", shape.ffn, "width of the MLP (default: 4 · hidden)")
      ->check(between(1, kMostWidth))
      ->group(group);
  app.add_option("--vocab", shape.vocab, "tokens of the vocabulary")
      ->check(between(1, kMostWidth))
      ->group(group);
  app.add_option("--max-positions", shape.max_positions,
                 "learned position embeddings (default: none, rotary)")
      ->check(between(1, kMostTokens))
      ->group(group);
  app.add_flag("--glu", words.glu, "gated MLP: three matrices")->group(group);
  app.add_flag("--tied", words.tied, "the head is the word embedding")->group(group);
  app.add_flag("--bias", words.bias, "biases, and LayerNorm instead of RMSNorm")->group(group);
  app.add_flag("--dropout", words.dropout, "keeps masks among the activations")->group(group);
}

void add_batch_flags(CLI::App& app, ModelWords& words, planner::ModelLayout& layout) {
  const char* group = "Batches and overlap";
  app.add_option("--seq", layout.seq, "tokens of a sequence (default: the model's)")
      ->check(between(1, kMostTokens))
      ->group(group);
  app.add_option("--global-batch", layout.global_batch, "sequences of a step")
      ->check(between(1, kMostBatch))
      ->group(group);
  app.add_option("--precision", words.precision, "bf16, fp16 or fp32")
      ->capture_default_str()
      ->group(group);
  app.add_flag("--overlap-grad-reduce,!--no-overlap-grad-reduce", layout.overlap_grad_reduce,
               "reduce gradients beside backward (on unless --no-…)")
      ->group(group);
  app.add_flag("--overlap-param-gather,!--no-overlap-param-gather", layout.overlap_param_gather,
               "gather weights beside the next forward (on unless --no-…)")
      ->group(group);
  app.add_flag("--overlap-tp,!--no-overlap-tp", layout.overlap_tp,
               "tensor parallel collectives beside their matrix products (off)")
      ->group(group);
  app.add_flag(
         "--rank-ordered-gradients", words.rank_ordered,
         "fold gradients in rank order, as tutti's training layer does (off: by any algorithm)")
      ->group(group);
  app.add_flag("--grad-reduce-in-bf16", layout.grad_reduce_in_bf16,
               "gradients are sent in bf16 and summed in f32 (off)")
      ->group(group);
  app.add_option("--bucket-bytes", words.bucket_bytes,
                 "gradients of a bucket, with K, M or G (default: as Megatron chooses)")
      ->group(group);
  app.add_option("--cluster", words.cluster, "a preset, or a file (docs/formats/cluster.md)")
      ->capture_default_str();
  app.add_option("--efficiency", words.efficiency,
                 "share of the peak that matrix products reach, 0 … 1 (default: the cluster's)")
      ->check(share());
}

Result<planner::Cluster> read_cluster(const ModelWords& words) {
  auto cluster = read_cluster(words.cluster);
  if (!cluster.ok()) return cluster;
  if (words.efficiency > 0) cluster->processor.efficiency = words.efficiency;
  return cluster;
}

Result<planner::Model> read_model(const ModelWords& words) {
  const planner::Model& said = words.shape;
  planner::Model model;
  if (!words.preset.empty()) {
    auto preset = planner::preset_model(words.preset);
    if (!preset.ok()) return preset.status();
    model = *std::move(preset);
  } else {
    model.name = "model";
    if (said.layers == 0 || said.hidden == 0 || said.heads == 0 || said.vocab == 0)
      return Status(Code::invalid_argument,
                    "say --preset NAME, or --layers, --hidden, --heads and --vocab");
  }
  const bool changes_width = said.hidden != 0 || said.heads != 0;
  if (!words.preset.empty() && changes_width) {  // what follows from the width follows again
    model.head_dim = 0;
    if (said.heads != 0) model.kv_heads = 0;
  }
  const auto take = [&](std::int64_t planner::Model::*field) {
    if (said.*field != 0) model.*field = said.*field;
  };
  for (const auto field :
       {&planner::Model::layers, &planner::Model::hidden, &planner::Model::heads,
        &planner::Model::kv_heads, &planner::Model::head_dim, &planner::Model::ffn,
        &planner::Model::vocab, &planner::Model::max_positions})
    take(field);
  model.glu |= words.glu;
  model.tied |= words.tied;
  model.bias |= words.bias;
  model.dropout |= words.dropout;
  return planner::complete(std::move(model));
}

Status read_precision(const ModelWords& words, planner::ModelLayout& layout) {
  const auto precision = planner::parse_precision(words.precision);
  if (!precision) {
    const std::string_view known[] = {"bf16", "fp16", "fp32"};
    return {Code::invalid_argument, unknown_word("precision", words.precision, known)};
  }
  layout.precision = *precision;
  if (words.rank_ordered) layout.gradient_order = ReductionOrder::rank;
  if (words.bucket_bytes.empty()) return {};
  const auto bytes = read_size("--bucket-bytes", words.bucket_bytes);
  if (!bytes.ok()) return bytes.status();
  layout.bucket_bytes = static_cast<double>(*bytes);
  return {};
}

}  // namespace tutti::tool::plan
