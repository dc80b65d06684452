#include "flags.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <limits>

#include "hf_folder.hpp"
#include "precision.hpp"
#include "range.hpp"
#include "recompute.hpp"
#include "shape.hpp"

namespace pretrain {

namespace {

constexpr const char* kExample =
    "Example: 4 ranks, every overlap, on the text of the licences\n"
    "  tutti run -n 4 pretrain_gpt --data-path /usr/share/common-licenses/GPL-3 \\\n"
    "      --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \\\n"
    "      --async-log-allreduce --train-iters 200 --log-json train.jsonl\n"
    "Without a launcher it trains on one rank. docs/formats/training_log.md explains the log.";

constexpr const char* kTests = "For tests";

void add_batches(CLI::App& app, Flags& flags) {
  const char* group = "Batches";
  app.add_option("--micro-batch-size", flags.micro_batch_size, "Sequences computed at once")
      ->check(whole(1, 1 << 20))
      ->group(group);
  app.add_option("--global-batch-size", flags.global_batch_size,
                 "Sequences of a step on all ranks; 0: one micro-batch a rank")
      ->check(whole(0, 1 << 30))
      ->group(group);
  app.add_option("--train-iters", flags.train_iters, "Steps in all; 0: nothing is trained")
      ->check(whole(0, kMostIterations))
      ->group(group);
  app.add_option("--seed", flags.seed, "Of weights, data order and dropout")
      ->check(whole(0, std::numeric_limits<std::int64_t>::max()))
      ->group(group);
  app.add_option("--eval-interval", flags.eval_interval, "Validate every so many steps; 0: never")
      ->check(whole(0, kMostIterations))
      ->group(group);
  app.add_option("--eval-iters", flags.eval_iters, "Global batches of a validation")
      ->check(whole(1, 1 << 20))
      ->group(group);
}

void add_data(CLI::App& app, Flags& flags) {
  const char* group = "Data";
  app.add_option(
         "--data-path", flags.data_path,
         "Files, read as bytes, each a document; or [WEIGHT] PREFIX ... of Megatron's PREFIX.bin and "
         "PREFIX.idx (tutti data build), blended by weight, without weights by size")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->default_str("")
      ->group(group);
  app.add_option("--split", flags.split,
                 "Of .bin/.idx: shares of documents for training, validation and test")
      ->group(group);
  app.add_option("--vocab-size", flags.vocab_size, "Tokens that there are; 0: as the data say")
      ->check(whole(0, 1 << 30))
      ->group(group);
  app.add_option("--eod-token", flags.end_of_document,
                 "The one that ends a document; -1: as the data say")
      ->check(whole(-1, 1 << 30))
      ->group(group);
  app.add_flag("--eod-mask-loss", flags.eod_mask_loss, "No loss at the end of a document")
      ->group(group);
}

void add_update(CLI::App& app, Flags& flags) {
  const char* group = "Update";
  app.add_option("--optimizer", flags.optimizer, "adam (AdamW) or sgd")
      ->check(CLI::IsMember({"adam", "sgd"}))
      ->group(group);
  app.add_option("--clip-grad", flags.clip_grad, "Largest global norm of the gradient; 0: any")
      ->check(real({.least = 0, .most = 1e9}))
      ->group(group);
  app.add_option("--adam-beta1", flags.adam_beta1)
      ->check(real({.least = 0, .most = 1, .below = true}))
      ->group(group);
  app.add_option("--adam-beta2", flags.adam_beta2)
      ->check(real({.least = 0, .most = 1, .below = true}))
      ->group(group);
  app.add_option("--adam-eps", flags.adam_eps)
      ->check(real({.least = 0, .most = 1, .above = true}))
      ->group(group);
  app.add_option("--sgd-momentum", flags.sgd_momentum)
      ->check(real({.least = 0, .most = 1, .below = true}))
      ->group(group);
}

void add_split(CLI::App& app, Flags& flags) {
  const char* group = "Splitting the model";
  app.add_option("--tensor-model-parallel-size", flags.tensor_parallel,
                 "Ranks that share each layer: heads, features and vocabulary")
      ->check(whole(1, 1 << 16))
      ->group(group);
  app.add_flag(
         "--sequence-parallel", flags.sequence_parallel,
         "Norms, dropout and what lies between the layers are cut by sequence over these ranks")
      ->group(group);
  app.add_flag("--tp-comm-overlap", flags.tp_comm_overlap,
               "Their collectives in pieces, beside the matrix products; needs --sequence-parallel")
      ->group(group);
  app.add_option("--pipeline-model-parallel-size", flags.pipeline_parallel,
                 "Stages, each with some of the layers")
      ->check(whole(1, 1 << 16))
      ->group(group);
  app.add_option(
         "--pipeline-schedule", flags.pipeline_schedule,
         "gpipe, 1f1b, interleaved or zb-h1; without it 1f1b, interleaved with virtual stages")
      ->check(CLI::IsMember({"gpipe", "1f1b", "interleaved", "zb-h1"}))
      ->group(group);
  app.add_option("--num-layers-per-virtual-pipeline-stage", flags.layers_per_virtual_stage,
                 "A rank gets several stages of so many layers; 0: one stage")
      ->check(whole(0, 10000))
      ->group(group);
  app.add_option("--decoder-first-pipeline-num-layers", flags.first_stage_layers,
                 "Layers of the first stage, which has the embedding; 0: as the others")
      ->check(whole(0, 10000))
      ->group(group);
  app.add_option("--decoder-last-pipeline-num-layers", flags.last_stage_layers,
                 "Layers of the last stage, which has the head; 0: as the others")
      ->check(whole(0, 10000))
      ->group(group);
  app.add_option("--context-parallel-size", flags.context_parallel,
                 "Ranks that share each sequence")
      ->check(whole(1, 1 << 16))
      ->group(group);
  app.add_option(
         "--cp-comm-type", flags.cp_comm_type,
         "How attention gets the others' keys and values: p2p (a ring), allgather, a2a (heads "
         "for tokens), a2a+p2p")
      ->check(CLI::IsMember({"p2p", "allgather", "a2a", "a2a+p2p"}))
      ->group(group);
  app.add_option("--hierarchical-context-parallel-sizes", flags.hierarchical_cp_sizes,
                 "Of a2a+p2p: how many exchange heads, and how many such groups form the ring")
      ->expected(2)
      ->check(whole(1, 1 << 16))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->default_str("")
      ->group(group);
  app.add_option("--cp-window-size", flags.cp_window_size,
                 "Of p2p: a ring of rings, so many ranks in each inner one; 0: one ring")
      ->check(whole(0, 1 << 16))
      ->group(group);
}

void add_overlap(CLI::App& app, Flags& flags) {
  const char* group = "Overlap";
  app.add_option("--bucket-size", flags.bucket_size, "Bytes of gradients; 0: chosen")
      ->check(whole(0, std::int64_t{1} << 40))
      ->group(group);
  app.add_option("--reduction-order", flags.reduction_order,
                 "In which gradients are summed over replicas: rank or tree")
      ->check(CLI::IsMember({"rank", "tree"}))
      ->group(group);
  app.add_flag("--use-distributed-optimizer", flags.use_distributed_optimizer,
               "Each rank updates a shard: --zero-stage 1")
      ->group(group);
  app.add_option(
         "--zero-stage", flags.zero_stage,
         "Each rank keeps its shard of: 1 the optimizer's state, 2 gradients as well, 3 weights as "
         "well; 2 and 3 reduce during every backward")
      ->check(whole(0, 3))
      ->group(group);
  app.add_flag("--overlap-grad-reduce", flags.overlap_grad_reduce, "Reduce during backward")
      ->group(group);
  app.add_flag("--overlap-param-gather", flags.overlap_param_gather,
               "Gather weights during the next forward; needs the other two")
      ->group(group);
  app.add_flag("--async-log-allreduce", flags.async_log_all_reduce,
               "Logging never waits; a line comes one step late")
      ->group(group);
  app.add_flag("--predict", flags.predict,
               "Rehearse some steps without communication; predicted beside measured times at the "
               "end")
      ->group(group);
}

void add_checks(CLI::App& app, Flags& flags) {
  const char* group = "Checks";
  app.add_flag("--check-for-nan-in-loss-and-grad", flags.check_for_nan,
               "NaN or Inf: compute the step once more, then end the run")
      ->group(group);
  app.add_flag("--strict-loss-check", flags.strict_loss_check,
               "The loss is judged before the update")
      ->group(group);
  app.add_flag("--check-for-spiky-loss", flags.check_for_spiky_loss, "Warn")->group(group);
  app.add_option("--check-weight-hash-across-dp-replicas-interval",
                 flags.check_weight_hash_interval, "Compare weights every so many steps; 0: never")
      ->check(whole(0, kMostIterations))
      ->group(group);
}

void add_logs(CLI::App& app, Flags& flags) {
  const char* group = "Logs and checkpoints";
  app.add_option("--log-interval", flags.log_interval, "Print every so many steps")
      ->check(whole(1, kMostIterations))
      ->group(group);
  app.add_option("--log-json", flags.log_json, "A JSON object for every step")->group(group);
  app.add_option("--trace", flags.trace,
                 "Folder for a trace of every rank, for tutti trace; as TUTTI_TRACE_DIR")
      ->group(group);
  app.add_option("--tensorboard-dir", flags.tensorboard_dir,
                 "Folder for TensorBoard: loss, rate, norm, times and tokens/s of every step")
      ->group(group);
  app.add_option(
         "--peak-flops", flags.peak_flops,
         "FLOP/s of a GPU, or of a rank on the CPU, of which MFU is told, such as 989e12; 0: "
         "measured by matrix products")
      ->check(real({.least = 0, .most = 1e18}))
      ->group(group);
  app.add_option("--save", flags.save, "Folder for checkpoints")->group(group);
  app.add_option("--save-interval", flags.save_interval, "Every so many steps, and at the end")
      ->check(whole(0, kMostIterations))
      ->group(group);
  app.add_option("--keep", flags.keep, "Newest checkpoints that stay; 0: all")
      ->check(whole(0, 1 << 30))
      ->group(group);
  app.add_flag("--async-save", flags.async_save,
               "Write checkpoints beside training, from a copy of what they hold")
      ->group(group);
  app.add_option(
         "--on-failure", flags.on_failure,
         "When a rank is lost: 'stop'; 'restart': stop, and go on from --load latest when "
         "tutti run --max-restarts starts it again; 'shrink': go on without it, and with it "
         "again when tutti run --max-restarts has started it")
      ->check(CLI::IsMember({kStop, kRestart, kShrink}))
      ->group(group);
  app.add_flag("--buddy", flags.buddy,
               "Copy each shard to a neighbour after every step, so that it is not lost with its "
               "rank; needs --use-distributed-optimizer and --on-failure shrink")
      ->group(group);
  app.add_option("--load", flags.load,
                 "Go on from a folder's latest checkpoint, or from one; 'latest': from the newest "
                 "whole one of --save, or begin anew where there is none")
      ->group(group);
  app.add_flag("--print-weight-hash", flags.print_weight_hash, "SHA-256 at the end")->group(group);
  app.add_option("--device", flags.device,
                 "cpu, or cuda: model, buckets and updates on a GPU; ranks of a host take its GPUs "
                 "in turn")
      ->check(CLI::IsMember({kCpu, kCuda}))
      ->group(group);
  app.add_option("--threads", flags.threads, "Compute threads of a rank")
      ->check(whole(1, 1024))
      ->group(group);
}

std::optional<Planted> parse_planted(const std::string& word) {
  Planted planted;
  char rest[8] = {};
  long long step = 0;
  const int fields = std::sscanf(word.c_str(), "%lld:%d%7s", &step, &planted.rank, rest);
  if (fields < 2 || (fields == 3 && std::string(rest) != ":once")) return std::nullopt;
  if (step < 1 || planted.rank < 0) return std::nullopt;
  planted.step = step;
  planted.once = fields == 3;
  return planted;
}

void add_planted(CLI::App& app, const char* name, std::optional<Planted>& target,
                 const char* meaning) {
  app.add_option_function<std::string>(
         name,
         [&target, name](const std::string& word) {
           target = parse_planted(word);
           if (!target) throw CLI::ValidationError(name, "'" + word + "' is not STEP:RANK[:once]");
         },
         meaning)
      ->group(kTests);
}

void add_faults(CLI::App& app, Flags& flags) {
  add_planted(app, "--inject-nan-at", flags.inject_nan,
              "Loss and gradients are NaN at STEP:RANK[:once]");
  add_planted(app, "--inject-loss-nan-at", flags.inject_loss_nan,
              "The loss is NaN, its gradients are not");
  add_planted(app, "--inject-inf-at", flags.inject_inf, "Gradients are not finite, the loss is");
  add_planted(app, "--die-at", flags.die, "SIGKILL before the update at STEP:RANK");
  app.add_option_function<std::string>(
         "--inject-delay",
         [&flags](const std::string& word) {
           char more = 0;
           if (std::sscanf(word.c_str(), "%d:%d%c", &flags.delayed_rank, &flags.delay_ms, &more) !=
                   2 ||
               flags.delayed_rank < 0 || flags.delay_ms < 0) {
             throw CLI::ValidationError("--inject-delay",
                                        "'" + word + "' is not RANK:MILLISECONDS");
           }
         },
         "RANK:MILLISECONDS before each backward")
      ->group(kTests);
}

tutti::Status bad(std::string text) { return {tutti::Code::invalid_argument, std::move(text)}; }

}  // namespace

Parsed parse_flags(int argc, const char* const* argv, WhoseModel model) {
  Parsed parsed;
  const bool ours = model == WhoseModel::ours;
  parsed.flags.has_own_model = !ours;
  if (!ours && argc > 0) parsed.flags.program = std::filesystem::path(argv[0]).filename().string();
  CLI::App app(ours ? "Trains a byte-level GPT or Llama on all ranks of a job."
                    : "Trains a model on all ranks of a job, by the loop of pretrain_gpt.",
               parsed.flags.program);
  if (ours) app.footer(kExample);
  // Said twice, the last one counts, so that a script can hand flags on and change some.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.option_defaults()->always_capture_default();  // --help shows them
  if (ours) {
    add_shape(app, parsed.flags);
    add_data(app, parsed.flags);
    add_split(app, parsed.flags);
    add_hf(app, parsed.flags);
    add_recompute(app, parsed.flags);
  }
  add_precision(app, parsed.flags);
  add_batches(app, parsed.flags);
  add_update(app, parsed.flags);
  add_schedule(app, parsed.flags);
  add_overlap(app, parsed.flags);
  add_checks(app, parsed.flags);
  add_logs(app, parsed.flags);
  add_faults(app, parsed.flags);
  try {
    app.parse(argc, argv);
    if (ours && parsed.flags.data_path.empty() && parsed.flags.train_iters > 0)
      throw CLI::RequiredError("--data-path");
    take_preset(app, parsed.flags);
    take_hf(app, parsed.flags);
    if (parsed.flags.on_failure == kRestart && parsed.flags.load.empty())
      parsed.flags.load = kLatest;
    if (auto status = check_flags(parsed.flags); !status.ok()) {
      parsed.exit_code = 2;
      parsed.text = status.message();
    }
  } catch (const CLI::CallForHelp&) {
    parsed.exit_code = 0;
    parsed.text = app.help();
  } catch (const CLI::ParseError& error) {
    // What was misspelt comes before what is missing because of it.
    const auto unknown = app.remaining();
    parsed.exit_code = 2;
    parsed.text = fmt::format("{}; see {} --help",
                              unknown.empty() ? std::string(error.what())
                                              : fmt::format("there is no '{}'", unknown.front()),
                              parsed.flags.program);
  }
  return parsed;
}

namespace {

tutti::Status check_zero_stage(const Flags& flags) {
  const int zero = flags.zero();
  if (flags.use_distributed_optimizer && zero != 1)
    return bad(
        fmt::format("--use-distributed-optimizer is --zero-stage 1, and --zero-stage is {}", zero));
  if (zero >= 2 && flags.pipeline_parallel > 1)
    return bad(
        fmt::format("--zero-stage {} and --pipeline-model-parallel-size {} do not go "
                    "together: several micro-batches' gradients are under way at once",
                    zero, flags.pipeline_parallel));
  if (zero >= 2 && flags.predict)
    return bad(fmt::format("--predict knows --zero-stage 0 and 1, not {}", zero));
  if (zero == 3 && flags.on_failure == kShrink)
    return bad(
        "--on-failure shrink needs --zero-stage below 3: a lost rank's weights have no copy");
  if (zero == 3 && flags.device == kCuda)
    return bad("--zero-stage 3 is not there with --device cuda; 2 is");
  return {};
}

}  // namespace

tutti::Status check_flags(const Flags& flags) {
  for (const tutti::Status& status : {check_shape(flags), check_hf(flags), check_schedule(flags),
                                      check_precision(flags), check_recompute(flags)})
    if (!status.ok()) return status;
  if (flags.overlap_param_gather && !(flags.zero() >= 1 && flags.overlaps_reductions())) {
    return bad(
        "--overlap-param-gather needs --use-distributed-optimizer and "
        "--overlap-grad-reduce");
  }
  if (tutti::Status status = check_zero_stage(flags); !status.ok()) return status;
  if (flags.strict_loss_check && !flags.check_for_nan) {
    return bad("--strict-loss-check needs --check-for-nan-in-loss-and-grad");
  }
  if (flags.save_interval > 0 && flags.save.empty()) {
    return bad("--save-interval needs --save");
  }
  if (flags.async_save && flags.save.empty()) return bad("--async-save needs --save");
  if (flags.on_failure == kRestart && (flags.save.empty() || flags.load != kLatest)) {
    return bad("--on-failure restart needs --save, and --load latest or none");
  }
  if (flags.buddy && !(flags.zero() >= 1 && flags.on_failure == kShrink)) {
    return bad("--buddy needs --use-distributed-optimizer and --on-failure shrink");
  }
  if (flags.predict && flags.has_own_model)
    return bad("--predict rehearses pretrain_gpt's own models");
  if (flags.predict && flags.device == kCuda) {
    return bad("--predict rehearses on the CPU: it is not there with --device cuda");
  }
  if (flags.load == kLatest && flags.save.empty()) {
    return bad("--load latest needs --save: it means the newest checkpoint there");
  }
  return {};
}

BatchShare share_of_batch(const Flags& flags, int sequences, int rank, int ranks) {
  const int total = sequences / flags.micro_batch_size;
  const int more = total % ranks;
  return {rank * (total / ranks) + std::min(rank, more), total / ranks + (rank < more ? 1 : 0),
          total};
}

tutti::Status check_batches(Flags& flags, int ranks) {
  const std::int64_t at_once = std::int64_t{flags.micro_batch_size} * ranks;
  if (flags.global_batch_size == 0 && at_once <= std::numeric_limits<int>::max())
    flags.global_batch_size = static_cast<int>(at_once);
  const BatchRamp ramp = flags.schedule().ramp;
  // Those that are left must be able to share it out as well.
  if (flags.on_failure == kShrink && flags.global_batch_size % flags.micro_batch_size == 0 &&
      flags.global_batch_size >= at_once && (ramp.start == 0 || ramp.start >= at_once))
    return check_ramp(ramp, flags.global_batch_size, flags.micro_batch_size);
  if (flags.global_batch_size < 1 || flags.global_batch_size % at_once != 0) {
    return bad(fmt::format(
        "--global-batch-size {} is not a multiple of {} (--micro-batch-size {} "
        "times {} rank{})",
        flags.global_batch_size, at_once, flags.micro_batch_size, ranks, ranks == 1 ? "" : "s"));
  }
  return check_ramp(ramp, flags.global_batch_size, at_once);
}

}  // namespace pretrain
