// What is told during forward and backward, and the reductions that backward starts.
#include <fmt/format.h>

#include <algorithm>

#include "train/replica.hpp"

namespace tutti::train {

// ---- forward

Status Replica::begin_micro_batch(bool last) {
  if (!status_.ok()) return status_;
  if (Status status = calls_.begin_micro_batch(last); !status.ok()) return fail(status);
  watch_.begin_micro_batch();
  // Nobody will ask for these.
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    if (!layout_.place[index] || asked_[index]) continue;
    if (Status status = await_gather(bucket_of(index)); !status.ok()) return fail(status);
    set_open(index, true);
  }
  return {};
}

void Replica::set_open(std::size_t index, bool open) {
  if (open_[index] == open) return;
  open_[index] = open;
  if (on_gate_) on_gate_(index, open);
}

std::size_t Replica::first_sum() const {
  const auto& buckets = layout_.buckets;
  return static_cast<std::size_t>(
      std::find_if(buckets.begin(), buckets.end(), [](const auto& plan) { return plan.sum >= 0; }) -
      buckets.begin());
}

void Replica::expect_gradients() {
  counts_.begin_step();
  next_ = sums_launched_ = 0;
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
  if (Status status = await_gather(bucket_of(index)); !status.ok()) return fail(status);
  set_open(index, true);
  return {};
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
  for (std::size_t index = 0; index < open_.size(); ++index) set_open(index, true);
  return {};
}

// ---- backward

void Replica::begin_backward() {
  if (!status_.ok()) return;
  if (Status status = calls_.begin_backward(); !status.ok()) return (void)fail(status);
  watch_.begin_backward();
  seen_order_.backward.clear();
}

void Replica::begin_backward(bool last) {
  if (!status_.ok()) return;
  if (Status status = calls_.begin_backward(last); !status.ok()) return (void)fail(status);
  watch_.begin_backward();
}

void Replica::ready(std::size_t index) {
  if (!status_.ok()) return;
  if (Status status = take_gradient(index); !status.ok()) (void)fail(status);
}

Status Replica::take_gradient(std::size_t index) {
  const Parameter& parameter = parameters_[index];
  if (Status status = calls_.ready(parameter.name); !status.ok()) return status;
  if (!layout_.place[index]) return {};
  // Gated once, it is no longer waited for before forward begins. Whether its gather happened to be
  // done when forward read it is a matter of luck.
  if (!open_[index])
    return {Code::invalid_argument,
            fmt::format("the gradient of parameter '{}' came, and its gate was not passed since "
                        "the last step: forward may have read old values. Call need before it is "
                        "read, or parameters_ready before forward",
                        parameter.name)};
  used_[index] = true;
  if (learning_ && (calls_.is_last() || !options_.pipelined)) seen_order_.backward.push_back(index);
  if (!calls_.is_last()) return {};
  const bool complete = counts_.add(index);
  if (parameter.count() == 0) return {};
  if (layout_.place[index]->bucket < next_)
    return {Code::invalid_argument,
            fmt::format("the gradient of parameter '{}' came {} times in this backward, and never "
                        "more than {} times before: bucket {} was reduced without it. A backward "
                        "that adds gradients more often than the first one cannot be overlapped; "
                        "turn overlap_grad_reduce off",
                        parameter.name, counts_.came(index), counts_.learned(index),
                        layout_.place[index]->bucket)};
  if (complete && --bucket_of(index).missing == 0) launch_reductions_that_are_ready();
  return {};
}

// Buckets with sums are the last ones.
void Replica::launch_reductions_that_are_ready() {
  if (!options_.overlap_grad_reduce) return;
  const auto is_ready = [&](std::size_t index) { return buckets_[index]->missing == 0; };
  while (next_ < first_sum() && is_ready(next_)) launch_reduction(next_++);
  while (next_sum() < buckets_.size() && is_ready(next_sum())) launch_sum(next_sum());
}

void Replica::launch_all_reductions() {
  while (next_ < first_sum()) launch_reduction(next_++);
  while (next_sum() < buckets_.size()) launch_sum(next_sum());
}

// Added up in place, by all ranks of the sum.
void Replica::launch_sum(std::size_t index) {
  ++sums_launched_;
  Bucket& bucket = *buckets_[index];
  const Buffer gradients = bucket.gradients();
  look_at_gradients(index);
  Group& group = sum_groups_[static_cast<std::size_t>(bucket.plan().sum)]->group();
  const auto start = [&] {
    return group.all_reduce_async(gradients, ReduceOp::sum,
                                  call_on(gradients, bucket.name.c_str()));
  };
  watch_.launch(bucket.sum, Stopwatch::Side::workplace, Collective::all_reduce,
                static_cast<int>(index), gradients.bytes(), start);
}

// This rank's own, as long as they are.
void Replica::look_at_gradients(std::size_t index) {
  if (!options_.check_for_nan) return;
  const Buffer gradients = buckets_[index]->gradients();
  workplace_->find_not_finite(index, static_cast<const float*>(gradients.data), gradients.count);
}

void Replica::launch_reduction(std::size_t index) {
  Bucket& bucket = *buckets_[index];
  const Buffer gradients = bucket.gradients();
  if (bucket.plan().sum < 0) look_at_gradients(index);
  const Collective collective =
      options_.use_distributed_optimizer ? Collective::reduce_scatter : Collective::all_reduce;
  const auto start = [&] {
    const CallOptions call = call_on(gradients, bucket.name.c_str());
    if (collective == Collective::all_reduce)
      return group_->all_reduce_async(gradients, ReduceOp::sum, call);
    return group_->reduce_scatter_async(gradients, bucket.gradients(bucket.shard()), ReduceOp::sum,
                                        call);
  };
  watch_.launch(bucket.reduction, Stopwatch::Side::workplace, collective, static_cast<int>(index),
                gradients.bytes(), start);
}

Status Replica::end_backward() {
  if (!status_.ok()) return status_;
  if (Status status = calls_.end_backward(); !status.ok()) return fail(status);
  watch_.end_backward();
  // Other micro-batches' graphs refer to the memory as it lies, and more gradients may come.
  if (options_.pipelined) return {};
  if (calls_.is_last()) counts_.learn();
  if (learning_)
    if (Status status = learn_order(); !status.ok()) return fail(status);
  if (!calls_.is_last()) return {};
  // What did not come is not used by this rank: its zeros are its contribution.
  if (options_.overlap_grad_reduce) launch_all_reductions();
  return {};
}

// All backwards of a step are over.
Status Replica::end_passes() {
  if (!options_.pipelined) return {};
  counts_.learn();
  return learning_ ? learn_order() : Status();
}

Status Replica::discard_gradients() {
  if (!status_.ok()) return status_;
  ExactSum ignored;
  if (Status status = complete_reductions(ignored); !status.ok()) return fail(status);
  if (Status status = parameters_ready(); !status.ok()) return status;
  for (const auto& bucket : buckets_) bucket->zero_gradients();
  end_step(std::nullopt);
  return {};
}

}  // namespace tutti::train
