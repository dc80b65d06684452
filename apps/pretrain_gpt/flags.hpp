// apps/pretrain_gpt/flags.hpp - what the command line says, by Megatron's names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule.hpp"
#include "tokens.hpp"
#include "tutti/status.hpp"
#include "tutti/train/llama_config.hpp"
#include "tutti/train/loss_scale.hpp"

namespace pretrain {

// For tests: something goes wrong at one step of one rank.
struct Planted {
  std::int64_t step = -1;
  int rank = -1;
  bool once = false;  // not when the step is computed again

  bool hits(std::int64_t at_step, int at_rank, int attempt) const {
    return step == at_step && rank == at_rank && (attempt == 0 || !once);
  }
};

inline constexpr const char* kLatest = "latest";  // of --load
// Of --on-failure.
inline constexpr const char* kStop = "stop";
inline constexpr const char* kRestart = "restart";
inline constexpr const char* kShrink = "shrink";
// Of --device.
inline constexpr const char* kCpu = "cpu";
inline constexpr const char* kCuda = "cuda";

// Of --position-embedding-type and --normalization.
inline constexpr const char* kLearned = "learned_absolute";
inline constexpr const char* kRope = "rope";
inline constexpr const char* kLayerNorm = "LayerNorm";
inline constexpr const char* kRmsNorm = "RMSNorm";

// Folders of Hugging Face's (hf_folder.hpp).
struct HfFlags {
  std::string load, save;
  std::uint64_t shard_bytes = 5'000'000'000;
  tutti::train::LlamaConfig config;  // of `load`
};

struct Flags {
  std::string program = "pretrain_gpt";  // as messages have it
  bool has_own_model = false;            // a task's (tutti/libtorch/trainer.hpp): none of ours

  // Model (shape.hpp).
  std::string preset;
  int num_layers = 4;
  int hidden_size = 128;
  int num_attention_heads = 4;
  bool group_query_attention = false;
  int num_query_groups = 1;  // of which each has a key and a value
  int ffn_hidden_size = 0;   // 0: 4 · hidden; gated: two thirds of that, in multiples of 64
  bool swiglu = false;
  std::string position_embedding_type = kLearned;
  double rotary_base = 10000;
  std::optional<tutti::train::RopeScaling> rope_scaling;
  std::string normalization = kLayerNorm;
  double norm_epsilon = 1e-5;
  bool disable_bias_linear = false;
  int seq_length = 128;
  double dropout = 0;
  bool untie_embeddings_and_output_weights = false;
  bool shuffle_definition_order = false;

  // Precision (precision.hpp).
  bool bf16 = false;
  bool fp16 = false;
  double fixed_loss_scale = 0;  // 0: it follows the gradients
  tutti::train::LossScale::Options loss_scale;
  bool grad_reduce_in_bf16 = false;

  // Memory (recompute.hpp).
  std::string recompute_granularity;  // empty: all activations are kept
  std::string recompute_method;
  int recompute_num_layers = 0;

  // Batches and data.
  int micro_batch_size = 4;
  int global_batch_size = 0;  // 0: one micro-batch a rank
  std::int64_t train_iters = 100;
  std::uint64_t seed = 1234;
  std::vector<std::string> data_path;
  std::string split = "969,30,1";
  std::int64_t vocab_size = 0;        // 0: what the data say
  std::int64_t end_of_document = -1;  // -1: likewise
  bool eod_mask_loss = false;
  std::int64_t eval_interval = 0;
  int eval_iters = 4;

  // Update.
  std::string optimizer = "adam";
  double lr = 1e-3;
  double min_lr = 0;
  std::string lr_decay_style = "cosine";
  std::int64_t lr_warmup_iters = 0;
  std::optional<double> lr_warmup_fraction;  // in place of it, of the decay
  double lr_warmup_init = 0;
  std::int64_t lr_decay_iters = 0;  // 0: train_iters
  std::int64_t lr_wsd_decay_iters = 0;
  std::string lr_wsd_decay_style = "exponential";
  std::optional<double> start_weight_decay, end_weight_decay;
  std::string weight_decay_incr_style = "constant";
  std::vector<std::int64_t> rampup_batch_size;  // start, increment, samples; empty: none
  bool override_schedule = false;  // the command line's schedule, whatever a checkpoint says
  bool use_checkpoint_schedule = false;
  double clip_grad = 1.0;
  double weight_decay = 0.01;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double sgd_momentum = 0.9;

  // Splitting the model. What is left of the ranks trains copies of it: data parallel.
  int tensor_parallel = 1;
  bool sequence_parallel = false;
  bool tp_comm_overlap = false;
  int pipeline_parallel = 1;
  std::string pipeline_schedule;     // empty: 1f1b, or interleaved with virtual stages
  int layers_per_virtual_stage = 0;  // 0: one virtual stage a rank
  int first_stage_layers = 0;        // 0: as the others
  int last_stage_layers = 0;
  int context_parallel = 1;
  std::string cp_comm_type = "p2p";
  std::vector<int> hierarchical_cp_sizes;  // of a2a+p2p: inner, outer
  int cp_window_size = 0;                  // ranks of an inner ring; 0: one ring

  // Overlap.
  std::size_t bucket_size = 0;
  std::string reduction_order = "rank";
  bool use_distributed_optimizer = false;
  std::optional<int> zero_stage;  // absent: by the flag above
  bool overlap_grad_reduce = false;
  bool overlap_param_gather = false;
  bool async_log_all_reduce = false;
  bool predict = false;

  // Checks.
  bool check_for_nan = false;
  bool strict_loss_check = false;
  bool check_for_spiky_loss = false;
  std::int64_t check_weight_hash_interval = 0;

  // Logs and checkpoints.
  std::int64_t log_interval = 1;
  std::string log_json;
  std::string trace;
  std::string tensorboard_dir;
  double peak_flops = 0;  // of a device; 0: measured
  std::string save;
  std::int64_t save_interval = 0;
  int keep = 0;
  bool async_save = false;
  std::string on_failure = kStop;
  bool buddy = false;
  std::string load;  // kLatest: from the folder of --save
  bool print_weight_hash = false;
  int threads = 1;
  std::string device = kCpu;

  HfFlags hf;

  // For tests.
  std::optional<Planted> inject_nan, inject_loss_nan, inject_inf, die;
  int delayed_rank = -1;
  int delay_ms = 0;

  int query_groups() const {
    return group_query_attention ? num_query_groups : num_attention_heads;
  }
  int ffn() const;
  std::int64_t vocabulary() const { return vocab_size > 0 ? vocab_size : kByteVocabulary; }
  bool has_rotary() const { return position_embedding_type == kRope; }
  bool has_bias() const { return !disable_bias_linear; }
  Schedule schedule() const;
  int zero() const { return zero_stage.value_or(use_distributed_optimizer ? 1 : 0); }
  // From the second stage on gradients cannot wait.
  bool overlaps_reductions() const { return overlap_grad_reduce || zero() >= 2; }
};

// Either flags, or what to say and to exit with (also after --help).
struct Parsed {
  Flags flags;
  std::optional<int> exit_code;
  std::string text;
};
enum class WhoseModel {
  ours,
  own,  // a task's: no flag of a model, of how it is cut, or of data
};
Parsed parse_flags(int argc, const char* const* argv, WhoseModel model = WhoseModel::ours);

// The micro-batches of a step that one rank computes: [first, first + count) of `total`. The same
// step has the same ones on any number of ranks; where they do not divide, the first ranks have one
// more.
struct BatchShare {
  int first = 0;
  int count = 0;
  int total = 0;
};
BatchShare share_of_batch(const Flags& flags, int sequences, int rank, int ranks);

// invalid_argument names the flags that do not fit together, or not this many ranks.
tutti::Status check_flags(const Flags& flags);
tutti::Status check_batches(Flags& flags, int ranks);

}  // namespace pretrain
