#include "hf_folder.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <type_traits>

#include "precision.hpp"
#include "tutti/train/llama_config.hpp"

namespace pretrain {

namespace fs = std::filesystem;
using tutti::Status;
using tutti::train::FolderTensor;
using tutti::train::LlamaConfig;
using tutti::train::TensorBox;
using Shape = std::vector<std::int64_t>;

// ---- flags

void add_hf(CLI::App& app, Flags& flags) {
  const char* group = "Hugging Face's folders";
  app.add_option("--load-hf", flags.hf.load,
                 "Begin with a Llama's folder: its config.json is the model, its safetensors files "
                 "the weights (with --load: the model alone)")
      ->group(group);
  app.add_option("--save-hf", flags.hf.save,
                 "Folder for the weights when --train-iters is reached, which the transformers "
                 "library opens; with --load and --train-iters 0 it is made of a checkpoint")
      ->group(group);
  app.add_option("--hf-shard-size", flags.hf.shard_bytes,
                 "Bytes of one of its files at most, such as 5GB")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::PositiveNumber)
      ->group(group);
}

namespace {

constexpr const char* kConfig = "config.json";

// Takes values from config.json for flags that were not given.
class Taking {
 public:
  Taking(const CLI::App& app, std::string path) : app_(app), path_(std::move(path)) {}

  template <class T, class Value>
  void take(const char* flag, T& target, const char* key, const Value& value) {
    const T theirs = static_cast<T>(value);
    if (app_.count(flag) > 0 && target != theirs)
      throw CLI::ValidationError(
          flag, fmt::format("{} is not what {} says: {} is {}", target, path_, key, theirs));
    target = theirs;
  }

 private:
  const CLI::App& app_;
  std::string path_;
};

}  // namespace

void take_hf(const CLI::App& app, Flags& flags) {
  if (flags.hf.load.empty()) return;
  if (!flags.preset.empty())
    throw CLI::ValidationError("--preset", "the model is that of --load-hf");
  auto config = tutti::train::read_llama_config(flags.hf.load);
  if (!config.ok()) throw CLI::ValidationError("--load-hf", config.status().message());
  Taking from(app, flags.hf.load + "/" + kConfig);
  from.take("--num-layers", flags.num_layers, "num_hidden_layers", config->layers);
  from.take("--hidden-size", flags.hidden_size, "hidden_size", config->hidden);
  from.take("--num-attention-heads", flags.num_attention_heads, "num_attention_heads",
            config->heads);
  from.take("--num-query-groups", flags.num_query_groups, "num_key_value_heads", config->kv_heads);
  from.take("--ffn-hidden-size", flags.ffn_hidden_size, "intermediate_size", config->ffn);
  from.take("--vocab-size", flags.vocab_size, "vocab_size", config->vocabulary);
  from.take("--rotary-base", flags.rotary_base, "rope_theta", config->rope_theta);
  from.take("--norm-epsilon", flags.norm_epsilon, "rms_norm_eps", config->norm_epsilon);
  from.take("--untie-embeddings-and-output-weights", flags.untie_embeddings_and_output_weights,
            "not tie_word_embeddings", !config->tied);
  from.take("--disable-bias-linear", flags.disable_bias_linear, "not attention_bias",
            !config->bias);
  from.take("--position-embedding-type", flags.position_embedding_type, "model_type's", kRope);
  from.take("--normalization", flags.normalization, "model_type's", kRmsNorm);
  flags.group_query_attention = config->kv_heads != config->heads;
  flags.swiglu = true;
  flags.rope_scaling = config->rope_scaling;
  if (app.count("--seq-length") == 0)
    flags.seq_length =
        static_cast<int>(std::min<std::int64_t>(flags.seq_length, config->positions));
  if (flags.seq_length > config->positions)
    throw CLI::ValidationError(
        "--seq-length", fmt::format("{} is more than max_position_embeddings, {}, of {}/{}",
                                    flags.seq_length, config->positions, flags.hf.load, kConfig));
  flags.hf.config = *std::move(config);
}

Status check_hf(const Flags& flags) {
  if (flags.hf.save.empty()) return {};
  if (flags.has_rotary() && flags.normalization == kRmsNorm && flags.swiglu) return {};
  return {tutti::Code::invalid_argument,
          "--save-hf writes Llamas: it needs --position-embedding-type rope, --normalization "
          "RMSNorm and --swiglu"};
}

// ---- which tensor is what

namespace {

// Of a fused layer the rows [first, first + count) of `rows`' second last dimension, in all others all.
//
//   qkv, a key for each head    [3, heads, d]                 q: part 0 of dimension 0
//   qkv, grouped                [groups, queries + 2, d]      q: parts 0 … queries − 1 of dimension 1
//   gate and up                 [2, inner]                    gate: part 0 of dimension 0
struct FusedRows {
  Shape rows;
  std::size_t dimension = 0;
};

class TensorList {
 public:
  explicit TensorList(const Flags& flags) : bias_(flags.has_bias()), width_(flags.hidden_size) {}

  void add(std::string name, Shape shape, std::string parameter) {
    tensors_.push_back({std::move(name), std::move(shape), std::move(parameter), {}});
  }

  // A linear layer's weight, and its bias where there are any.
  void add_linear(const std::string& name, const std::string& layer, std::int64_t out,
                  std::int64_t in) {
    add(name + ".weight", {out, in}, layer + ".weight");
    if (bias_) add(name + ".bias", {out}, layer + ".bias");
  }

  // A part of one whose rows are several layers', which read all of width_.
  void add_fused(const std::string& name, const std::string& layer, const FusedRows& fused,
                 std::int64_t first, std::int64_t count) {
    const auto add_part = [&](const char* suffix, bool is_matrix) {
      TensorBox box{fused.rows, Shape(fused.rows.size(), 0), fused.rows};
      box.first[fused.dimension] = first;
      box.extent[fused.dimension] = count;
      Shape shape{1};
      for (const std::int64_t extent : box.extent) shape[0] *= extent;
      if (is_matrix) {
        shape.push_back(width_);
        box.whole.push_back(width_);
        box.first.push_back(0);
        box.extent.push_back(width_);
      }
      tensors_.push_back({name + suffix, shape, layer + suffix, box});
    };
    add_part(".weight", true);
    if (bias_) add_part(".bias", false);
  }

  std::vector<FolderTensor> take() { return std::move(tensors_); }

 private:
  bool bias_;
  std::int64_t width_;
  std::vector<FolderTensor> tensors_;
};

void add_layer(TensorList& list, const Flags& flags, int index) {
  const std::string theirs = fmt::format("model.layers.{}.", index);
  const std::string ours = fmt::format("decoder.layers.{}.", index);
  const std::int64_t width = flags.hidden_size, heads = flags.num_attention_heads,
                     groups = flags.query_groups(), inner = flags.ffn();
  list.add(theirs + "input_layernorm.weight", {width}, ours + "input_layernorm.weight");
  const bool grouped = groups != heads;
  const std::int64_t queries = grouped ? heads / groups : 1;
  const FusedRows qkv = grouped ? FusedRows{{groups, queries + 2, width / heads}, 1}
                                : FusedRows{{3, heads, width / heads}, 0};
  const std::string fused = ours + "self_attention.linear_qkv";
  list.add_fused(theirs + "self_attn.q_proj", fused, qkv, 0, queries);
  list.add_fused(theirs + "self_attn.k_proj", fused, qkv, queries, 1);
  list.add_fused(theirs + "self_attn.v_proj", fused, qkv, queries + 1, 1);
  list.add_linear(theirs + "self_attn.o_proj", ours + "self_attention.linear_proj", width, width);
  list.add(theirs + "post_attention_layernorm.weight", {width}, ours + "pre_mlp_layernorm.weight");
  list.add_fused(theirs + "mlp.gate_proj", ours + "mlp.linear_fc1", {{2, inner}, 0}, 0, 1);
  list.add_fused(theirs + "mlp.up_proj", ours + "mlp.linear_fc1", {{2, inner}, 0}, 1, 1);
  list.add_linear(theirs + "mlp.down_proj", ours + "mlp.linear_fc2", width, inner);
}

// Some writers keep them; they follow from config.json, or are the word embedding.
std::vector<std::string> ignored_tensors(const Flags& flags) {
  std::vector<std::string> names;
  for (int i = 0; i < flags.num_layers; ++i)
    names.push_back(fmt::format("model.layers.{}.self_attn.rotary_emb.inv_freq", i));
  if (!flags.untie_embeddings_and_output_weights) names.push_back("lm_head.weight");
  return names;
}

// What else such a folder has that goes with the weights.
std::vector<std::string> companions(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("tokenizer") || name.starts_with("chat_template") ||
        name == "special_tokens_map.json" || name == "generation_config.json")
      paths.push_back(at->path().string());
  }
  return paths;
}

LlamaConfig config_of(const Flags& flags) {
  LlamaConfig config = flags.hf.config;
  config.layers = flags.num_layers;
  config.hidden = flags.hidden_size;
  config.heads = flags.num_attention_heads;
  config.kv_heads = flags.query_groups();
  config.ffn = flags.ffn();
  config.vocabulary = flags.vocabulary();
  config.rope_theta = flags.rotary_base;
  config.rope_scaling = flags.rope_scaling;
  config.norm_epsilon = flags.norm_epsilon;
  config.tied = !flags.untie_embeddings_and_output_weights;
  config.bias = flags.has_bias();
  config.dtype = weight_dtype(flags);
  if (flags.hf.load.empty()) config.positions = flags.seq_length;
  return config;
}

}  // namespace

std::vector<FolderTensor> hf_tensors(const Flags& flags) {
  TensorList list(flags);
  const Shape table{flags.vocabulary(), flags.hidden_size};
  list.add("model.embed_tokens.weight", table, "embedding.word_embeddings.weight");
  for (int i = 0; i < flags.num_layers; ++i) add_layer(list, flags, i);
  list.add("model.norm.weight", {flags.hidden_size}, "decoder.final_layernorm.weight");
  if (flags.untie_embeddings_and_output_weights)
    list.add("lm_head.weight", table, "output_layer.weight");
  return list.take();
}

// ---- folders

Status check_hf_folders(const Flags& flags) {
  if (!flags.hf.load.empty() && (flags.load.empty() || flags.load == kLatest)) {
    const Status status =
        tutti::train::may_load_weights(flags.hf.load, hf_tensors(flags), ignored_tensors(flags));
    if (!status.ok()) return status.annotate("--load-hf");
  }
  if (flags.hf.save.empty()) return {};
  return tutti::train::may_save_weights(flags.hf.save).annotate("--save-hf");
}

Status load_hf(tutti::train::DataParallel& model, const Flags& flags) {
  return tutti::train::load_weights(model, flags.hf.load, hf_tensors(flags), ignored_tensors(flags))
      .annotate("--load-hf");
}

Status save_hf(tutti::train::DataParallel& model, const Flags& flags,
               std::int64_t end_of_document) {
  LlamaConfig config = config_of(flags);
  if (config.text.empty()) config.end_token = end_of_document;
  tutti::train::SaveWeightsOptions options;
  options.shard_bytes = flags.hf.shard_bytes;
  options.texts[kConfig] = tutti::train::to_config_text(config);
  if (!flags.hf.load.empty()) options.copied = companions(flags.hf.load);
  return tutti::train::save_weights(model, flags.hf.save, hf_tensors(flags), options)
      .annotate("--save-hf");
}

}  // namespace pretrain
