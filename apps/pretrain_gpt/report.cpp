#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

namespace pretrain {

namespace {

using tutti::train::Outcome;
using tutti::train::RankOverlap;

struct Field {
  const char* name;  // in the log, without its unit
  const char* words;
  double RankOverlap::*value;
};
constexpr std::array kTimes = {
    Field{"step", "step", &RankOverlap::step_s},
    Field{"forward", "forward", &RankOverlap::forward_s},
    Field{"backward", "backward", &RankOverlap::backward_s},
    Field{"update", "update", &RankOverlap::update_s},
    Field{"wait", "wait", &RankOverlap::wait_s},
    Field{"skew", "skew (waiting for ranks)", &RankOverlap::skew_s},
    Field{"exposed", "exposed communication", &RankOverlap::exposed_s},
    Field{"wire", "communication (wire)", &RankOverlap::wire_s},
    Field{"tail", "tail", &RankOverlap::tail_s},
    Field{"bound", "bound of the step", &RankOverlap::bound_s},
};

struct MemoryKind {
  const char* name;
  double TakenMemory::*measured;
  double tutti::plan::ReplicaMemory::*planned;
};
using Planned = tutti::plan::ReplicaMemory;
constexpr std::array kMemoryKinds = {
    MemoryKind{"weights", &TakenMemory::weights, &Planned::weights},
    MemoryKind{"gradients", &TakenMemory::gradients, &Planned::gradients},
    MemoryKind{"optimizer", &TakenMemory::optimizer, &Planned::optimizer},
    MemoryKind{"pool", &TakenMemory::pool, &Planned::buffers},
    MemoryKind{"activations", &TakenMemory::activations, &Planned::activations},
};

// JSON has no NaN.
std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.17g}", value) : "null";
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    if (letter == '\n')
      out += "\\n";
    else if (static_cast<unsigned char>(letter) < 0x20)
      out += ' ';
    else
      out += letter;
  }
  return out + "\"";
}

std::string json_of(const RankOverlap& times) {
  std::string out;
  for (const Field& field : kTimes) {
    out += fmt::format("\"{}_s\":{},", field.name, number(times.*field.value));
  }
  return "{" + out + "\"hidden\":" + number(times.hidden) + "}";
}

std::string json_of(const AxisWaits& waits) {
  std::string out;
  for (const AxisField& field : kAxes)
    out += fmt::format("{}\"{}_s\":{}", out.empty() ? "" : ",", field.name,
                       number(waits.*field.seconds));
  return "{" + out + "}";
}

// Behind those that stand in an object already.
std::string field(const std::string& before, const char* name, double value) {
  return fmt::format("{}\"{}\":{}", before.empty() ? "" : ",", name, number(value));
}

std::string json_of(const TakenMemory& memory) {
  std::string out;
  for (const MemoryKind& kind : kMemoryKinds) out += field(out, kind.name, memory.*kind.measured);
  return "{" + out + "}";
}

std::string with_line_end(const std::string& text) {
  return text.empty() || text.back() == '\n' ? text : text + "\n";
}

const char* remark(Outcome outcome) {
  switch (outcome) {
    case Outcome::updated: return "";
    case Outcome::skipped:
    case Outcome::rejected: return "  SKIPPED: a gradient is not finite";
    case Outcome::empty: return "  EMPTY: nothing counts in its loss";
  }
  return "";
}

}  // namespace

TrainingReport::TrainingReport(const Flags& flags, int ranks, std::int64_t first_step)
    : flags_(flags),
      ranks_(ranks),
      first_step_(first_step),
      begin_(std::chrono::steady_clock::now()) {
  mean_.hidden = max_.hidden = 0;  // sums, from here on
}

TrainingReport::~TrainingReport() {
  if (log_ != nullptr) std::fclose(log_);
}

tutti::Result<std::unique_ptr<TrainingReport>> TrainingReport::open(const Flags& flags, int ranks,
                                                                    std::int64_t first_step) {
  std::unique_ptr<TrainingReport> report(new TrainingReport(flags, ranks, first_step));
  if (!flags.log_json.empty()) {
    report->log_ = std::fopen(flags.log_json.c_str(), first_step > 1 ? "a" : "w");
    if (report->log_ == nullptr) {
      return tutti::Status(tutti::Code::io, "--log-json " + flags.log_json +
                                                " cannot be written: " + std::strerror(errno));
    }
  }
  if (!flags.tensorboard_dir.empty()) {
    auto events = EventFile::create(flags.tensorboard_dir);
    if (!events.ok()) return events.status().annotate("--tensorboard-dir");
    report->events_ = *std::move(events);
  }
  return report;
}

// A full disk does not end a training run: it is said once, and the run's end says it again.
void TrainingReport::fail(const std::string& text) {
  if (failure_.ok()) failure_ = tutti::Status(tutti::Code::io, text);
  std::fprintf(stderr, "%s: warning: %s; training goes on\n", flags_.program.c_str(), text.c_str());
}

void TrainingReport::put(const std::string& text) {
  if (stdout_failed_) return;
  stdout_failed_ =
      std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0;
  if (stdout_failed_)
    fail(fmt::format("standard output cannot be written: {}", std::strerror(errno)));
}

void TrainingReport::write_log(const std::string& json) {
  if (log_ == nullptr) return;
  if (std::fprintf(log_, "%s\n", json.c_str()) >= 0 && std::fflush(log_) == 0) return;
  const int error = errno;
  std::fclose(log_);
  log_ = nullptr;
  fail(fmt::format("--log-json {} cannot be written: {}", flags_.log_json, std::strerror(error)));
}

void TrainingReport::write_events(std::int64_t step, std::span<const Scalar> scalars) {
  if (!events_) return;
  if (auto status = events_->write(step, scalars); !status.ok()) {
    events_.reset();
    fail(status.message());
  }
}

void TrainingReport::begin(const std::string& model, const std::string& mesh,
                           const std::string& layout) {
  const std::string batch =
      flags_.has_own_model
          ? fmt::format("{} samples", flags_.global_batch_size)
          : fmt::format("{} sequences of {} tokens", flags_.global_batch_size, flags_.seq_length);
  print("{}; {} rank{}, {} a step\n{}{}", model, ranks_, ranks_ == 1 ? "" : "s", batch,
        with_line_end(mesh), with_line_end(layout));
  layout_ = layout;
  write_log(fmt::format(
      "{{\"event\":\"begin\",\"version\":1,\"model\":{},\"ranks\":{},"
      "\"first_step\":{},\"train_iters\":{},\"global_batch_size\":{},"
      "\"micro_batch_size\":{},\"seq_length\":{},"
      "\"use_distributed_optimizer\":{},\"zero_stage\":{},\"overlap_grad_reduce\":{},"
      "\"overlap_param_gather\":{},\"async_log\":{}}}",
      quoted(model), ranks_, first_step_, flags_.train_iters, flags_.global_batch_size,
      flags_.micro_batch_size, flags_.seq_length, flags_.zero() >= 1, flags_.zero(),
      flags_.overlaps_reductions(), flags_.overlap_param_gather, flags_.async_log_all_reduce));
}

void TrainingReport::resumed(const std::string& from) {
  print("resumed from {}: {} of {} steps are done\n", from, first_step_ - 1, flags_.train_iters);
}

void TrainingReport::nothing_left() {
  print("nothing left to do: --train-iters {} is reached\n", flags_.train_iters);
}

void TrainingReport::read(const std::string& folder) { print("weights of {}\n", folder); }

void TrainingReport::wrote(const std::string& folder) { print("weights written to {}\n", folder); }

void TrainingReport::begun_anew(const std::string& folder) {
  print("no checkpoint in {} yet: the run begins anew\n", folder);
}

void TrainingReport::stopped(std::int64_t step, bool saved) {
  print("stopped after step {} by a signal, {}\n", step,
        saved ? "and saved: --load latest goes on from here" : "without --save: nothing is kept");
  write_log(fmt::format("{{\"event\":\"stopped\",\"step\":{},\"saved\":{}}}", step, saved));
}

void TrainingReport::shrunk(std::int64_t step, int before, int now, const std::string& why) {
  print("{} of {} ranks left, going on after step {}: {}\n", now, before, step, why);
  write_log(
      fmt::format("{{\"event\":\"shrunk\",\"step\":{},\"before\":{},\"ranks\":{},\"why\":{}}}",
                  step, before, now, quoted(why)));
}

void TrainingReport::grown(std::int64_t step, int before, int now) {
  const int back = now - before;
  print("{} {} back after step {}: going on with {}\n", back, back == 1 ? "rank is" : "ranks are",
        step, now);
  write_log(fmt::format("{{\"event\":\"grown\",\"step\":{},\"before\":{},\"ranks\":{}}}", step,
                        before, now));
}

void TrainingReport::predict(const Foretold& prediction) {
  prediction_ = prediction;
  const auto& step = prediction.step;
  print(
      "predicted: step {:.1f} ms, exposed communication {:.2f} ms of {:.2f} ms on the wire; "
      "beside each other compute keeps {:.0f} % of its pace, communication {:.0f} %\n",
      step.step_s * 1e3, step.exposed_s * 1e3, step.wire_s * 1e3, prediction.pace.compute * 100,
      prediction.pace.channel * 100);
}

void TrainingReport::tell_prediction() {
  const double steps = static_cast<double>(steps_);
  const MeasuredSteps measured{mean_.step_s / steps, mean_.exposed_s / steps, mean_.wire_s / steps};
  print("{}", compare(*prediction_, measured));
  const auto& step = prediction_->step;
  write_log(
      fmt::format("{{\"event\":\"prediction\","
                  "\"predicted\":{{\"step_s\":{},\"exposed_s\":{},\"wire_s\":{}}},"
                  "\"measured\":{{\"step_s\":{},\"exposed_s\":{},\"wire_s\":{}}},"
                  "\"alone_s\":{},\"tuner_s\":{}}}",
                  number(step.step_s), number(step.exposed_s), number(step.wire_s),
                  number(measured.step_s), number(measured.exposed_s), number(measured.wire_s),
                  number(prediction_->alone_s), number(prediction_->tuner_s)));
}

void TrainingReport::compute(const Compute& compute) {
  compute_ = compute;
  print("peak: {:.4g} GFLOP/s a rank, {}; a token takes {:.4g} GFLOP\n", compute.peak_flops / 1e9,
        compute.measured ? "measured by matrix products on all ranks at once" : "by --peak-flops",
        compute.token_flops / 1e9);
  write_log(
      fmt::format("{{\"event\":\"compute\",\"peak_flops\":{},\"measured\":{},\"token_flops\":{}}}",
                  number(compute.peak_flops), compute.measured, number(compute.token_flops)));
}

double TrainingReport::mfu(const StepLine& line) const {
  if (!compute_ || !(line.overlap.max.step_s > 0)) return std::numeric_limits<double>::quiet_NaN();
  const double tokens = static_cast<double>(line.sequences) * flags_.seq_length;
  return tokens * compute_->token_flops /
         (line.overlap.max.step_s * line.ranks * compute_->peak_flops);
}

double TrainingReport::done_in(const StepLine& line) const {
  return flags_.has_own_model ? line.sequences : static_cast<double>(line.counted);
}

Throughput TrainingReport::throughput(const StepLine& line) const {
  const double step_s = line.overlap.max.step_s;
  return {flags_.has_own_model ? "samples" : "tokens", step_s > 0 ? done_in(line) / step_s : 0};
}

std::string TrainingReport::step_json(const StepLine& line) const {
  const Throughput speed = throughput(line);
  return fmt::format(
      "{{\"step\":{},\"loss\":{},\"grad_norm\":{},\"lr\":{},\"weight_decay\":{},\"batch_size\":{},"
      "\"{}\":{},\"{}_per_s\":{},"
      "\"mfu\":{},\"outcome\":\"{}\",{}\"mean\":{},\"max\":{},\"axes\":{}}}",
      line.step, number(line.loss), number(line.grad_norm), number(line.lr),
      number(line.weight_decay), line.sequences, flags_.has_own_model ? "counted" : "tokens",
      line.counted, speed.of, number(speed.per_s), number(mfu(line)),
      tutti::train::to_string(line.outcome),
      line.loss_scale > 0 ? fmt::format("\"loss_scale\":{},", number(line.loss_scale)) : "",
      json_of(line.overlap.mean), json_of(line.overlap.max), json_of(line.waits));
}

void TrainingReport::layout(const std::string& layout) {
  if (layout == layout_) return;
  layout_ = layout;
  print("the order of use is known; the buckets are\n{}", with_line_end(layout));
}

std::string TrainingReport::time_left(std::int64_t step) const {
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
  const double each = spent.count() / static_cast<double>(step - first_step_ + 1);
  const auto left = std::llround(each * static_cast<double>(flags_.train_iters - step));
  return fmt::format("{}:{:02}", left / 60, left % 60);
}

void TrainingReport::print_line(const StepLine& line) {
  const RankOverlap& mean = line.overlap.mean;
  const double compute = mean.forward_s + mean.backward_s + mean.update_s;
  const Throughput speed = throughput(line);
  print(
      "step {}/{}  loss {:.6f}  grad norm {:.4g}  lr {:.3g}{}  {:.0f} {}/s  step {:.1f} ms"
      "  compute {:.1f}  communication {:.1f}  exposed {:.1f} (max {:.1f})  hidden {:.0f} %"
      "{}  ETA {}{}\n",
      line.step, flags_.train_iters, line.loss, line.grad_norm, line.lr,
      line.loss_scale > 0 ? fmt::format("  loss scale {:g}", line.loss_scale) : "", speed.per_s,
      speed.of, line.overlap.max.step_s * 1e3, compute * 1e3, mean.wire_s * 1e3,
      mean.exposed_s * 1e3, line.overlap.max.exposed_s * 1e3, mean.hidden * 100,
      compute_ ? fmt::format("  MFU {:.1f} %", mfu(line) * 100) : "", time_left(line.step),
      remark(line.outcome));
}

void TrainingReport::step(const StepLine& line) {
  if (line.counted > 0) {
    if (std::isnan(first_loss_)) first_loss_ = line.loss;
    last_loss_ = line.loss;
  }
  const bool print = line.step % flags_.log_interval == 0 || line.step == first_step_ ||
                     line.step == flags_.train_iters || line.outcome != Outcome::updated;
  if (print) print_line(line);
  const double share = mfu(line);
  const Throughput speed = throughput(line);
  const std::string speed_tag = fmt::format("throughput/{}_per_s", speed.of);
  write_log(step_json(line));
  write_events(
      line.step,
      std::array{Scalar{"loss/train", line.loss}, Scalar{"optimizer/learning_rate", line.lr},
                 Scalar{"optimizer/weight_decay", line.weight_decay},
                 Scalar{"optimizer/grad_norm", line.grad_norm},
                 Scalar{"batch/sequences", static_cast<double>(line.sequences)},
                 Scalar{"time/step_s", line.overlap.max.step_s},
                 Scalar{"time/exposed_s", line.overlap.max.exposed_s},
                 Scalar{"time/hidden_share", line.overlap.mean.hidden},
                 Scalar{speed_tag, speed.per_s}, Scalar{"throughput/mfu", share}});
  // The first step also learns the order, moves the buckets and warms everything up.
  if (line.step > first_step_) add_to_table(line);
}

void TrainingReport::add_to_table(const StepLine& line) {
  for (const Field& field : kTimes) {
    mean_.*field.value += line.overlap.mean.*field.value;
    max_.*field.value += line.overlap.max.*field.value;
  }
  mean_.hidden += line.overlap.mean.hidden;
  max_.hidden += line.overlap.max.hidden;
  done_ += done_in(line);
  const double share = mfu(line);
  if (std::isfinite(share)) used_ += share * line.overlap.max.step_s;
  ++steps_;
}

void TrainingReport::validation(std::int64_t step, double loss) {
  if (flags_.has_own_model) {  // its loss need not be of tokens
    print("step {}  validation loss {:.6f}\n", step, loss);
    write_events(step, std::array{Scalar{"loss/validation", loss}});
    return write_log(
        fmt::format("{{\"event\":\"validation\",\"step\":{},\"loss\":{}}}", step, number(loss)));
  }
  const double perplexity = std::exp(loss);
  print("step {}  validation loss {:.6f}  perplexity {:.4g}\n", step, loss, perplexity);
  write_events(step, std::array{Scalar{"loss/validation", loss},
                                Scalar{"perplexity/validation", perplexity}});
  write_log(fmt::format("{{\"event\":\"validation\",\"step\":{},\"loss\":{},\"perplexity\":{}}}",
                        step, number(loss), number(perplexity)));
}

void TrainingReport::warning(std::int64_t step, const std::string& text) {
  print("step {}  warning: {}\n", step, text);
  write_log(fmt::format("{{\"event\":\"warning\",\"step\":{},\"text\":{}}}", step, quoted(text)));
}

void TrainingReport::checkpoint(const SavedCheckpoint& saved, const std::string& folder) {
  print("step {}  saved to {}: training was held up for {:.1f} of {:.1f} ms\n", saved.step, folder,
        saved.held_s * 1e3, saved.took_s * 1e3);
  write_log(fmt::format(
      "{{\"event\":\"checkpoint\",\"step\":{},\"folder\":{},\"held_s\":{},\"took_s\":{}}}",
      saved.step, quoted(folder), number(saved.held_s), number(saved.took_s)));
}

void TrainingReport::print_table(std::int64_t last_step) {
  const double steps = static_cast<double>(steps_);
  print("\n{:<26}{:>14}{:>14}\n", fmt::format("ms, steps {} … {}", first_step_ + 1, last_step),
        "mean of ranks", "max of ranks");
  for (const Field& field : kTimes) {
    print("{:<26}{:>14.3f}{:>14.3f}\n", field.words, mean_.*field.value / steps * 1e3,
          max_.*field.value / steps * 1e3);
  }
  print("{:<26}{:>12.1f} %{:>12.1f} %  (smallest)\n", "hidden share", mean_.hidden / steps * 100,
        max_.hidden / steps * 100);
  print("{:<26}{:>14.0f}\n", fmt::format("{}/s", throughput({}).of),
        max_.step_s > 0 ? done_ / max_.step_s : 0);
  if (compute_ && max_.step_s > 0)
    print("{:<26}{:>12.1f} %  (of the {} peak)\n", "MFU", used_ / max_.step_s * 100,
          compute_->measured ? "measured" : "given");
}

// Each kind of the rank that has most of it, beside what arithmetic says.
void TrainingReport::memory(const MemoryLine& line) {
  constexpr double kMiB = 1 << 20;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const tutti::plan::ReplicaMemory none{nan, nan, nan, nan, nan};
  const tutti::plan::ReplicaMemory predicted = line.predicted.value_or(none);
  std::string words, measured, planned;
  for (const MemoryKind& kind : kMemoryKinds) {
    double most = line.ranks[0].*kind.measured;
    for (const TakenMemory& rank : line.ranks) most = std::max(most, rank.*kind.measured);
    const double plan = predicted.*kind.planned;
    words += fmt::format("{} {} {}{}", words.empty() ? "" : ",", kind.name,
                         std::isfinite(most) ? fmt::format("{:.1f}", most / kMiB) : "not counted",
                         std::isfinite(plan) ? fmt::format(" ({:.1f})", plan / kMiB) : "");
    measured += field(measured, kind.name, most);
    planned += field(planned, kind.name, plan);
  }
  std::string ranks;
  for (const TakenMemory& rank : line.ranks) ranks += (ranks.empty() ? "" : ",") + json_of(rank);
  print("memory of a rank at most, MiB{}:{}\n", line.predicted ? " (predicted)" : "", words);
  write_log(
      fmt::format("{{\"event\":\"memory\",\"device\":{},\"measured\":{{{}}},\"predicted\":{{{}}},"
                  "\"ranks\":[{}]}}",
                  pretrain::quoted(flags_.device), measured, planned, ranks));
}

void TrainingReport::units(std::span<const tutti::train::BucketWaits> waits) {
  ++unit_steps_;
  for (const auto& one : waits) {
    units_[one.bucket].gather_s += one.gather_s;
    units_[one.bucket].reduce_s += one.reduce_s;
  }
}

void TrainingReport::print_units() {
  const auto steps = static_cast<double>(unit_steps_);
  print("exposed in a step of rank 0, ms, by bucket\n{:>8}{:>10}{:>10}\n", "bucket", "gather",
        "reduce");
  std::string words;
  for (const auto& [bucket, sums] : units_) {
    print("{:>8}{:>10.3f}{:>10.3f}\n", bucket, sums.gather_s / steps * 1e3,
          sums.reduce_s / steps * 1e3);
    words +=
        fmt::format("{}{{\"bucket\":{},\"gather_s\":{},\"reduce_s\":{}}}", words.empty() ? "" : ",",
                    bucket, number(sums.gather_s / steps), number(sums.reduce_s / steps));
  }
  write_log(fmt::format("{{\"event\":\"units\",\"exposed\":[{}]}}", words));
}

void TrainingReport::end(std::int64_t step, std::int64_t skipped, std::int64_t transient,
                         const std::string& weight_hash) {
  if (steps_ > 0) print_table(step);
  if (steps_ > 0 && prediction_) tell_prediction();
  if (unit_steps_ > 0) print_units();
  if (first_step_ <= flags_.train_iters)
    print("loss {:.6f} -> {:.6f}; {} step{} skipped, {} computed again\n", first_loss_, last_loss_,
          skipped, skipped == 1 ? "" : "s", transient);
  if (log_ != nullptr) print("log in {}\n", flags_.log_json);
  if (!weight_hash.empty()) print("weights sha256 {}\n", weight_hash);
  write_log(
      fmt::format("{{\"event\":\"end\",\"step\":{},\"skipped\":{},\"transient\":{},"
                  "\"weights\":{}}}",
                  step, skipped, transient, quoted(weight_hash)));
}

}  // namespace pretrain
