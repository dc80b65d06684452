// One step: what is told during forward and backward, and the update that follows.
#include <algorithm>
#include <cmath>

#include "train/kernels.hpp"
#include "train/replica.hpp"

namespace tutti::train {

// ---- forward

Status Replica::begin_micro_batch(bool last) {
  if (!status_.ok()) return status_;
  watch_.begin_micro_batch();
  last_ = last;
  std::fill(came_.begin(), came_.end(), false);
  expect_gradients();
  // Nobody will ask for these.
  for (std::size_t index = 0; index < parameters_.size(); ++index)
    if (layout_.place[index] && !asked_[index])
      if (Status status = await_gather(bucket_of(index)); !status.ok()) return fail(status);
  return {};
}

void Replica::expect_gradients() {
  next_ = 0;
  for (const auto& bucket : buckets_) {
    bucket->missing = static_cast<std::size_t>(
        std::count_if(bucket->plan().parameters.begin(), bucket->plan().parameters.end(),
                      [&](std::size_t index) { return parameters_[index].count() > 0; }));
  }
}

Status Replica::need(std::size_t index) {
  if (!status_.ok()) return status_;
  if (!layout_.place[index]) return {};
  if (learning_ && !asked_[index]) seen_order_.forward.push_back(index);
  asked_[index] = true;
  Status status = await_gather(bucket_of(index));
  return status.ok() ? status : fail(status);
}

Status Replica::await_gather(Bucket& bucket) {
  if (bucket.landed == bucket.generation) return {};
  if (Status status = watch_.await(bucket.gather); !status.ok())
    return status.annotate("gathering parameters");
  bucket.landed = bucket.generation;
  return {};
}

Status Replica::parameters_ready() {
  if (!status_.ok()) return status_;
  for (std::size_t bucket : layout_.forward)
    if (Status status = await_gather(*buckets_[bucket]); !status.ok()) return fail(status);
  return {};
}

// ---- backward

void Replica::begin_backward() { watch_.begin_backward(); }

void Replica::ready(std::size_t index) {
  if (!layout_.place[index] || came_[index]) return;
  came_[index] = true;
  if (!used_[index]) control_.set_used(index);
  used_[index] = true;
  if (learning_) seen_order_.backward.push_back(index);
  if (parameters_[index].count() == 0) return;
  if (--bucket_of(index).missing == 0) launch_reductions_that_are_ready();
}

void Replica::launch_reductions_that_are_ready() {
  // In the very first backward the layout is still to change.
  if (!last_ || !options_.overlap_grad_reduce || learning_) return;
  while (next_ < buckets_.size() && buckets_[next_]->missing == 0) launch_reduction(next_++);
}

void Replica::launch_all_reductions() {
  while (next_ < buckets_.size()) launch_reduction(next_++);
}

void Replica::launch_reduction(std::size_t index) {
  Bucket& bucket = *buckets_[index];
  if (options_.check_for_nan) look_for_faults(index);
  const Buffer gradients = bucket.gradients();
  const Collective collective =
      options_.use_distributed_optimizer ? Collective::reduce_scatter : Collective::all_reduce;
  watch_.launch(bucket.reduction, collective, static_cast<int>(index), gradients.bytes(), [&] {
    CallOptions call;
    call.name = bucket.name.c_str();
    if (collective == Collective::all_reduce)
      return group_->all_reduce_async(gradients, ReduceOp::sum, call);
    return group_->reduce_scatter_async(gradients, bucket.gradients(bucket.shard()), ReduceOp::sum,
                                        call);
  });
}

void Replica::look_for_faults(std::size_t index) {
  const Buffer gradients = buckets_[index]->gradients();
  const std::size_t at =
      first_not_finite(static_cast<const float*>(gradients.data), gradients.count);
  if (at < gradients.count) control_.set_gradient_fault(parameter_at(index, at), false);
}

Status Replica::end_backward() {
  watch_.end_backward();
  if (!status_.ok()) return status_;
  if (learning_) {
    if (Status status = learn_order(); !status.ok()) return fail(status);
    // The new buckets have what the old ones had.
    for (const auto& bucket : buckets_) bucket->missing = 0;
  }
  // What did not come is not used by this rank: its zeros are its contribution.
  if (last_ && options_.overlap_grad_reduce) launch_all_reductions();
  return {};
}

// ---- step

Result<StepReport> Replica::step(const StepInput& input) {
  if (!status_.ok()) return status_;
  watch_.begin_update();
  launch_all_reductions();
  ExactSum norm;
  if (Status status = await_reductions(norm); !status.ok()) return fail(status);
  if (Status status = exchange_control(input, norm); !status.ok()) return fail(status);
  StepReport report = read_control();
  if (report.outcome == Outcome::updated) {
    if (Status status = update_all(input, report); !status.ok()) return fail(status);
  } else {
    for (const auto& bucket : buckets_) bucket->zero_gradients();
  }
  end_step(report.outcome == Outcome::updated && options_.overlap_param_gather);
  return report;
}

// The norm of one bucket is summed while the next is still on its way.
Status Replica::await_reductions(ExactSum& norm) {
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    if (Status status = watch_.await(buckets_[index]->reduction); !status.ok())
      return status.annotate("reducing gradients");
    add_norm(index, norm);
  }
  return {};
}

// Every rank sums its shard, in every mode. Blocks begin at multiples of 64 elements, as parameters
// and shards do; padding is zero.
void Replica::add_norm(std::size_t index, ExactSum& norm) {
  const Range shard = buckets_[index]->shard();
  const auto* gradient = static_cast<const float*>(buckets_[index]->gradients(shard).data);
  constexpr std::size_t kChunk = 64 * kBlock;
  double sums[kChunk / kBlock];
  for (std::size_t at = 0; at < shard.count; at += kChunk) {
    const std::size_t count = std::min(kChunk, shard.count - at);
    block_squares(gradient + at, count, sums);
    for (std::size_t block = 0; block < (count + kBlock - 1) / kBlock; ++block) {
      if (std::isfinite(sums[block])) {
        norm.add(sums[block]);
      } else {
        const std::size_t offset = shard.first + at + block * kBlock;
        control_.set_gradient_fault(parameter_at(index, offset), true);
      }
    }
  }
}

Status Replica::exchange_control(const StepInput& input, const ExactSum& norm) {
  control_.set_norm(norm);
  control_.set_tokens(input.tokens);
  if (!input.loss_is_finite) control_.set_loss_fault();
  const std::span<std::int64_t> words = control_.vector();
  Pending pending;
  watch_.launch(pending, Collective::all_reduce, -1, words.size_bytes(), [&] {
    CallOptions call;
    call.name = "control";
    return group_->all_reduce_async(Buffer::of(words.data(), words.size()), ReduceOp::sum, call);
  });
  return watch_.await(pending).annotate("agreeing on the step");
}

std::vector<Fault> Replica::faults_found() const {
  const auto findings = control_.slot_faults();
  // What was not finite before the reduction is not finite after it either: that says nothing new.
  const bool known = std::any_of(findings.begin(), findings.end(),
                                 [](const auto& finding) { return !finding.after_reduction; });
  std::vector<Fault> faults;
  for (const Control::SlotFault& finding : findings) {
    if (known && finding.after_reduction) continue;
    Fault fault;
    fault.rank = finding.after_reduction ? -1 : finding.rank;
    fault.is_loss = finding.is_loss;
    if (finding.parameter) {
      fault.parameter = parameters_[*finding.parameter].name;
      fault.bucket = static_cast<int>(layout_.place[*finding.parameter]->bucket);
    }
    faults.push_back(std::move(fault));
  }
  return faults;
}

StepReport Replica::read_control() {
  StepReport report;
  report.tokens = control_.tokens();
  report.grad_norm = std::sqrt(control_.norm_squared()) /
                     static_cast<double>(std::max<std::int64_t>(report.tokens, 1));
  report.faults = faults_found();
  if (!report.faults.empty()) {
    const bool loss = std::any_of(report.faults.begin(), report.faults.end(),
                                  [](const Fault& fault) { return fault.is_loss; });
    report.outcome = loss || options_.check_for_nan ? Outcome::rejected : Outcome::skipped;
  }
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    if (!layout_.place[index] || told_[index] || control_.used_by(index) > 0) continue;
    told_[index] = true;
    report.unused.push_back(parameters_[index].name);
  }
  return report;
}

Status Replica::update_all(const StepInput& input, const StepReport& report) {
  // An update must not overtake the gather of the one before.
  if (Status status = parameters_ready(); !status.ok()) return status;
  Update update;
  update.lr = input.lr;
  update.grad_scale = 1 / static_cast<double>(std::max<std::int64_t>(report.tokens, 1));
  // As torch.nn.utils.clip_grad_norm_ does it.
  if (options_.clip_grad > 0)
    update.grad_scale *= std::min(1.0, options_.clip_grad / (report.grad_norm + 1e-6));
  for (std::size_t index : layout_.forward) {
    update_bucket(index, update);
    if (options_.use_distributed_optimizer)
      launch_gather(index);
    else
      buckets_[index]->landed = buckets_[index]->generation;
  }
  // When the gathers are on their way: nobody waits for zeros.
  for (const auto& bucket : buckets_) bucket->zero_gradients();
  return options_.overlap_param_gather ? Status() : parameters_ready();
}

void Replica::update_bucket(std::size_t index, const Update& update) {
  Bucket& bucket = *buckets_[index];
  for (std::size_t parameter : bucket.plan().parameters) {
    // As in torch, what nobody used is left alone: not even decayed.
    if (control_.used_by(parameter) == 0) continue;
    const std::int64_t steps = ++steps_[parameter];
    const Range elements = overlap_of(range_of(parameter), bucket.own());
    if (elements.count == 0) continue;
    const auto group = static_cast<std::size_t>(parameters_[parameter].group);
    update_parameter(options_, update, options_.groups[group], steps, bucket, elements);
  }
  bucket.narrow_values();
  ++bucket.generation;
}

void Replica::launch_gather(std::size_t index) {
  Bucket& bucket = *buckets_[index];
  const Buffer values = bucket.values();
  watch_.launch(bucket.gather, Collective::all_gather, static_cast<int>(index), values.bytes(),
                [&] {
                  CallOptions call;
                  call.name = bucket.name.c_str();
                  return group_->all_gather_async(bucket.values(bucket.shard()), values, call);
                });
}

void Replica::end_step(bool gathers_are_carried) {
  std::vector<Pending*> carried;
  if (gathers_are_carried)
    for (std::size_t bucket : layout_.forward) carried.push_back(&buckets_[bucket]->gather);
  watch_.end_step(carried);
  control_.clear();
  std::fill(used_.begin(), used_.end(), false);
  expect_gradients();
}

Status Replica::discard_gradients() {
  if (!status_.ok()) return status_;
  launch_all_reductions();
  ExactSum ignored;
  if (Status status = await_reductions(ignored); !status.ok()) return fail(status);
  for (const auto& bucket : buckets_) bucket->zero_gradients();
  end_step(false);
  return {};
}

}  // namespace tutti::train
