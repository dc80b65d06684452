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
  if (reducer_.in_every_micro_batch()) expect_gradients();
  if (!keeps_whole_weights()) {
    gatherer_.begin_micro_batch();
    std::fill(passed_.begin(), passed_.end(), false);
    return {};
  }
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

void Replica::expect_gradients() {
  counts_.begin_step();
  reducer_.begin_round();
}

Status Replica::need(std::size_t index) {
  if (!status_.ok()) return status_;
  if (!layout_.place[index]) return {};
  if (learning_ && !asked_[index]) seen_order_.forward.push_back(index);
  asked_[index] = true;
  passed_[index] = true;
  if (!keeps_whole_weights())
    if (Status status = gatherer_.need(index); !status.ok()) return fail(status);
  if (Status status = await_gather(bucket_of(index)); !status.ok()) return fail(status);
  set_open(index, true);
  return {};
}

void Replica::done(std::size_t index) {
  if (!status_.ok() || keeps_whole_weights()) return;
  if (gatherer_.done(index)) set_open(index, false);
}

// Of a micro-batch: nothing is whole any more.
Status Replica::end_gathers() {
  if (keeps_whole_weights()) return {};
  for (std::size_t index = 0; index < parameters_.size(); ++index)
    if (layout_.place[index]) set_open(index, false);
  return gatherer_.end_pass();
}

Status Replica::await_gather(Bucket& bucket) {
  if (bucket.landed == bucket.generation) return {};
  if (Status status = watch_.await(bucket.gather); !status.ok())
    return status.annotate("gathering parameters");
  bucket.landed = bucket.generation;
  return {};
}

Status Replica::parameters_ready() {
  if (!status_.ok() || !keeps_whole_weights()) return status_;
  for (std::size_t bucket : layout_.forward)
    if (Status status = await_gather(*buckets_[bucket]); !status.ok()) return fail(status);
  for (std::size_t index = 0; index < open_.size(); ++index) set_open(index, true);
  return {};
}

// ---- backward

void Replica::begin_backward() {
  if (!status_.ok()) return;
  if (Status status = calls_.begin_backward(); !status.ok()) return (void)fail(status);
  // Gradients that are kept whole are added in place: the micro-batch before must have been taken out.
  if (reducer_.in_every_micro_batch() && keeps_whole_gradients())
    if (Status status = reducer_.settle_all(); !status.ok()) return (void)fail(status);
  if (!keeps_whole_weights())
    if (Status status = gatherer_.begin_backward(); !status.ok()) return (void)fail(status);
  watch_.begin_backward();
  seen_order_.backward.clear();
}

Buffer Replica::gradient(std::size_t index) {
  if (!layout_.place[index]) return {};
  if (!keeps_whole_gradients()) {
    if (!status_.ok() || !calls_.in_backward()) return {};
    if (const auto opened = reducer_.open(layout_.place[index]->bucket); !opened.ok()) {
      (void)fail(opened.status());
      return {};
    }
  }
  return bucket_of(index).gradients(range_of(index));
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
  if (!open_[index] && (keeps_whole_weights() || !passed_[index]))
    return {Code::invalid_argument,
            fmt::format("the gradient of parameter '{}' came, and its gate was not passed since "
                        "the last step: forward may have read old values. Call need before it is "
                        "read, or parameters_ready before forward",
                        parameter.name)};
  used_[index] = true;
  if (learning_ && (calls_.is_last() || !options_.pipelined)) seen_order_.backward.push_back(index);
  if (!gradients_go()) return {};
  const bool complete = counts_.add(index);
  if (parameter.count() == 0) return {};
  if (reducer_.has_gone(layout_.place[index]->bucket)) return take_late_gradient(index);
  if (complete) reducer_.complete(layout_.place[index]->bucket);
  return {};
}

// Before it is known how often gradients come, a bucket that is not kept whole goes when it is thought to
// be complete, and once more with what came after that. Later it is an error.
Status Replica::take_late_gradient(std::size_t index) {
  const std::size_t bucket = layout_.place[index]->bucket;
  if (!counts_known_ && !keeps_whole_gradients()) {
    late_[bucket] = true;
    return {};
  }
  return {
      Code::invalid_argument,
      fmt::format("the gradient of parameter '{}' came {} times in this backward, and never "
                  "more than {} times before: bucket {} was reduced without it. A backward "
                  "that adds gradients more often than the first one cannot be overlapped; "
                  "turn overlap_grad_reduce off, with zero below 2",
                  parameters_[index].name, counts_.came(index), counts_.learned(index), bucket)};
}

// Whose bucket goes once more must be the same on all ranks.
Status Replica::reduce_late_gradients() {
  std::vector<std::uint8_t> late(late_.begin(), late_.end());
  if (Status status = beside_->all_reduce(Buffer::of(late), ReduceOp::max); !status.ok())
    return status;
  for (std::size_t bucket = 0; bucket < late.size(); ++bucket)
    if (late[bucket] != 0) reducer_.launch_again(bucket);
  std::fill(late_.begin(), late_.end(), false);
  return reducer_.settle_all();
}

Status Replica::end_backward() {
  if (!status_.ok()) return status_;
  if (Status status = calls_.end_backward(); !status.ok()) return fail(status);
  watch_.end_backward();
  // Other micro-batches' graphs refer to the memory as it lies, and more gradients may come.
  if (options_.pipelined) return {};
  if (Status status = end_gathers(); !status.ok()) return fail(status);
  // What did not come is not used by this rank: its zeros are its contribution.
  if (!keeps_whole_gradients()) reducer_.launch_rest();
  if (!keeps_whole_gradients() && !counts_known_)
    if (Status status = reduce_late_gradients(); !status.ok()) return fail(status);
  if (gradients_go()) learn_counts();
  if (learning_)
    if (Status status = learn_order(); !status.ok()) return fail(status);
  if (!keeps_whole_weights() && gatherer_.is_learning())
    if (Status status = gatherer_.learn(options_.prefetch_units); !status.ok()) return fail(status);
  const bool overlaps = options_.overlap_grad_reduce || reducer_.in_every_micro_batch();
  if (keeps_whole_gradients() && gradients_go() && overlaps) reducer_.launch_rest();
  return {};
}

void Replica::learn_counts() {
  counts_.learn();
  counts_known_ = true;
  reducer_.set_may_go_again(false);
}

// All backwards of a step are over.
Status Replica::end_passes() {
  if (!options_.pipelined) return {};
  learn_counts();
  return learning_ ? learn_order() : Status();
}

Status Replica::discard_gradients() {
  if (!status_.ok()) return status_;
  if (Status status = complete_rounds(); !status.ok()) return fail(status);
  if (Status status = end_gathers(); !status.ok()) return fail(status);
  if (Status status = parameters_ready(); !status.ok()) return status;
  (void)workplace_->take_findings(buckets_.size());
  zero_gradients();
  end_step(std::nullopt);
  return {};
}

// What other ranks may have launched, because they are further on in the same micro-batch.
Status Replica::complete_rounds() {
  gatherer_.launch_rest();
  const int rounds = reducer_.in_every_micro_batch() ? calls_.micro_batches() : 1;
  if (reducer_.rounds() < rounds) reducer_.launch_rest();
  if (Status status = reducer_.settle_all(); !status.ok()) return status;
  return share_uses();
}

}  // namespace tutti::train
