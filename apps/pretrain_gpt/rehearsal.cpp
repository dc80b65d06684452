#include "rehearsal.hpp"

#include <algorithm>
#include <chrono>

#include "channel_trial.hpp"
#include "model.hpp"

namespace pretrain {

namespace train_ = tutti::train;
using tutti::Collective;
using tutti::Result;
using tutti::Status;

namespace {

constexpr int kWarmUp = 2;  // the order is learned, memory is touched
constexpr int kFewestSteps = 5, kMostSteps = 50;
constexpr double kEnoughSeconds = 3;
// Adam touches 28 bytes of each element, the norm 4 and zeroing 4.
constexpr double kUpdateShare = 28.0 / 36, kNormShare = 4.0 / 36;

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct SoloStep {
  train_::StepTimes times;
  std::int64_t backward_begin = 0;  // of the last micro-batch
  double compute_s() const { return seconds(times.forward + times.backward + times.update); }
};

// ---- compute alone

class Solo {
 public:
  Solo(tutti::Group& group, const Flags& flags, Data& data)
      : group_(group), flags_(flags), data_(data) {}

  Result<std::vector<SoloStep>> run(tutti::libtorch::Options options) {
    auto alone = group_.split(group_.rank(), 0, {"rehearsal"});
    if (!alone.ok()) return alone.status();
    net_ = make_model(flags_, whole_share(flags_));
    auto model = DataParallel::create(net_, {*alone, *alone}, std::move(options));
    if (!model.ok()) return model.status();
    model_ = *model;
    std::vector<SoloStep> steps;
    double spent = 0;  // by the rank that is ahead; alike on all
    for (int i = 0;
         steps.size() < kFewestSteps || (steps.size() < kMostSteps && spent < kEnoughSeconds);
         ++i) {
      auto step = one_step(i);
      if (!step.ok()) return step.status();
      if (i >= kWarmUp) {
        spent += step->compute_s();
        steps.push_back(*std::move(step));
      }
      // Ranks of one host compute at the same time, as they will.
      if (auto status = group_.all_reduce(tutti::Buffer::of(&spent, 1), tutti::ReduceOp::min);
          !status.ok())
        return status;
    }
    if (auto status = model_->layer().parameters_ready(); !status.ok()) return status;
    return steps;
  }

 private:
  Result<SoloStep> one_step(int number) {
    const int size = flags_.micro_batch_size;
    const int batches = flags_.global_batch_size / (size * group_.size());
    SoloStep step;
    std::int64_t tokens = 0;
    for (int micro = 0; micro < batches; ++micro) {
      if (auto status = model_->begin_micro_batch(micro + 1 == batches); !status.ok())
        return status;
      const auto index = static_cast<std::uint64_t>(number * batches + micro);
      const auto read = data_.training(index * static_cast<std::uint64_t>(size), size);
      if (!read.ok()) return read.status();
      const ModelBatch batch = cut_batch(*net_, *read, size);
      const torch::Tensor loss = loss_sum(*net_, batch, {model_.get()});
      (void)loss.item<float>();
      tokens += batch.counted;
      step.backward_begin = now_ns();
      if (auto status = model_->backward(loss); !status.ok()) return status;
    }
    auto report = model_->step({.lr = 0, .tokens = tokens, .loss_is_finite = true});
    if (!report.ok()) return report.status();
    step.times = model_->layer().take_times();
    return step;
  }

  tutti::Group& group_;
  const Flags& flags_;
  Data& data_;
  std::shared_ptr<Gpt> net_;
  std::shared_ptr<DataParallel> model_;
};

bool is_reduction(const train_::CollectiveTimes& call) {
  return call.bucket >= 0 && call.collective != Collective::all_gather;
}

// What one step's record says, of one rank.
Rehearsal read(const SoloStep& step, const Flags& flags, int ranks) {
  const train_::StepTimes& times = step.times;
  Rehearsal rehearsal;
  tutti::plan::StepShape& shape = rehearsal.shape;
  shape.first_forward_s = seconds(times.first_forward);
  shape.last_backward_s = seconds(times.last_backward);
  shape.other_s =
      seconds(times.forward + times.backward) - shape.first_forward_s - shape.last_backward_s;
  // Alone, a rank updates everything and takes the norm of everything.
  const double own = 1.0 / ranks;
  const double updated = flags.zero() >= 1 ? own : 1;
  shape.update_s = seconds(times.update) *
                   (kUpdateShare * updated + kNormShare * own + (1 - kUpdateShare - kNormShare));
  std::int64_t first_gather = times.begin;
  for (const train_::CollectiveTimes& call : times.collectives) {
    if (is_reduction(call)) {
      rehearsal.reductions.push_back({call.collective, call.bytes, flags.grad_reduce_in_bf16,
                                      seconds(call.joined - step.backward_begin), 0});
    } else if (call.collective == Collective::all_gather) {
      rehearsal.gathers.push_back(
          {call.collective, call.bytes, false, seconds(call.wait_begin - times.begin), 0});
      first_gather = std::min(first_gather, call.joined);
    } else {
      rehearsal.control = {call.collective, call.bytes, false, 0, 0};
    }
  }
  if (flags.overlap_param_gather)
    shape.head_start_s = std::min(seconds(times.begin - first_gather), shape.update_s);
  return rehearsal;
}

// ---- mean over steps and ranks

void append(const Rehearsal& rehearsal, std::vector<double>& numbers) {
  const auto& shape = rehearsal.shape;
  numbers = {shape.first_forward_s, shape.last_backward_s, shape.other_s, shape.update_s,
             shape.head_start_s};
  for (const auto* calls : {&rehearsal.reductions, &rehearsal.gathers})
    for (const PlannedCollective& call : *calls) numbers.push_back(call.at_s);
}

void take(const std::vector<double>& numbers, Rehearsal& rehearsal) {
  auto next = numbers.begin();
  auto& shape = rehearsal.shape;
  for (double* field : {&shape.first_forward_s, &shape.last_backward_s, &shape.other_s,
                        &shape.update_s, &shape.head_start_s})
    *field = *next++;
  for (auto* calls : {&rehearsal.reductions, &rehearsal.gathers})
    for (PlannedCollective& call : *calls) call.at_s = *next++;
}

Result<Rehearsal> mean_of(tutti::Group& group, const Flags& flags,
                          const std::vector<SoloStep>& steps) {
  std::vector<double> sums;
  Rehearsal result;
  for (const SoloStep& step : steps) {
    result = read(step, flags, group.size());
    std::vector<double> numbers;
    append(result, numbers);
    sums.resize(numbers.size(), 0);
    if (sums.size() != numbers.size())
      return Status(tutti::Code::internal, "the rehearsal's steps have different buckets");
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] += numbers[i] / static_cast<double>(steps.size());
  }
  if (auto status = group.all_reduce(tutti::Buffer::of(sums), tutti::ReduceOp::avg); !status.ok())
    return status;
  take(sums, result);
  // In every step all wait for the slowest.
  std::vector<double> slowest, mean;
  for (const SoloStep& step : steps) slowest.push_back(step.compute_s());
  mean = slowest;
  if (auto status = group.all_reduce(tutti::Buffer::of(slowest), tutti::ReduceOp::max);
      !status.ok())
    return status;
  if (auto status = group.all_reduce(tutti::Buffer::of(mean), tutti::ReduceOp::avg); !status.ok())
    return status;
  for (std::size_t i = 0; i < steps.size(); ++i)
    result.waiting_s += (slowest[i] - mean[i]) / static_cast<double>(steps.size());
  return result;
}

}  // namespace

Result<Rehearsal> rehearse(tutti::Group& group, const Flags& flags, Data& data,
                           tutti::libtorch::Options options, train_::DataParallel& real) {
  options.layer.bucket_bytes = real.options().bucket_bytes;
  options.layer.order_hint.clear();
  auto steps = Solo(group, flags, data).run(std::move(options));
  if (!steps.ok()) return steps.status().annotate("rehearsal");
  auto result = mean_of(group, flags, *steps);
  if (!result.ok()) return result;
  result->shape.overlap_reductions = flags.overlap_grad_reduce;
  result->shape.overlap_gathers = flags.overlap_param_gather;
  if (group.size() == 1 || result->reductions.empty()) return result;
  if (auto status = try_channel(group, *result); !status.ok()) return status.annotate("rehearsal");
  return result;
}

}  // namespace pretrain
