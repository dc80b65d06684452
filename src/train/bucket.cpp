#include "train/bucket.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace tutti::train {
namespace {

// The workplace gives floats.
std::size_t floats_of(std::size_t bytes) { return (bytes + sizeof(float) - 1) / sizeof(float); }

}  // namespace

Range overlap_of(Range a, Range b) {
  const std::size_t first = std::max(a.first, b.first);
  const std::size_t end = std::min(a.first + a.count, b.first + b.count);
  return {first, end > first ? end - first : 0};
}

Keeps keeps_of(const DataParallelOptions& options) {
  const int zero = options.zero.value_or(0);
  return {zero < 3, zero < 2, zero < 1, options.reduce_every_micro_batch,
          options.grad_reduce_in_bf16};
}

Result<std::unique_ptr<Bucket>> Bucket::create(Group& group, BucketPlan plan, const Keeps& keeps,
                                               std::shared_ptr<Workplace> workplace) {
  std::unique_ptr<Bucket> bucket(new Bucket);
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t part = plan.elements / ranks;
  bucket->keeps_ = keeps;
  bucket->shard_ = {part * static_cast<std::size_t>(group.rank()), part};
  bucket->own_ = keeps.whole_state ? Range{0, plan.elements} : bucket->shard_;
  bucket->plan_ = std::move(plan);
  bucket->workplace_ = std::move(workplace);
  Workplace& place = *bucket->workplace_;
  if (keeps.whole_weights) {
    auto values = group.allocate(bucket->value_bytes(), place.device());
    if (!values.ok()) return values.status().annotate("memory for a bucket of parameters");
    bucket->values_ = *std::move(values);
  } else {
    bucket->shard_values_ = place.allocate(floats_of(part * size_of(bucket->plan_.dtype)));
  }
  if (keeps.whole_gradients) {
    auto gradients = group.allocate(bucket->gradient_bytes(), place.device());
    if (!gradients.ok()) return gradients.status().annotate("memory for a bucket of gradients");
    bucket->gradients_ = *std::move(gradients);
  }
  if (keeps.sum) bucket->sum_ = place.allocate(part);
  return bucket;
}

Buffer Bucket::values(Range range) const {
  TUTTI_CHECK(values_.data != nullptr);
  auto* data = static_cast<std::byte*>(values_.data) + range.first * size_of(plan_.dtype);
  return {data, range.count, plan_.dtype, workplace_->device()};
}

Buffer Bucket::gradients(Range range) const {
  TUTTI_CHECK(gradients_.data != nullptr);
  auto* data = static_cast<float*>(gradients_.data) + range.first;
  return {data, range.count, Dtype::f32, workplace_->device()};
}

Buffer Bucket::sent_gradients() {
  const Buffer kept = gradients();
  if (!is_sent_in_bf16(plan_, keeps_.sends_bf16)) return kept;
  auto* rounded = reinterpret_cast<std::uint16_t*>(static_cast<float*>(kept.data) + kept.count);
  workplace_->narrow(Dtype::bf16, static_cast<const float*>(kept.data), rounded, kept.count);
  return {rounded, kept.count, Dtype::bf16, workplace_->device()};
}

Buffer Bucket::shard_values(Range range) const {
  if (!shard_values_) return values(range);
  auto* data = reinterpret_cast<std::byte*>(shard_values_.get()) +
               (range.first - shard_.first) * size_of(plan_.dtype);
  return {data, range.count, plan_.dtype, workplace_->device()};
}

Buffer Bucket::own_values() const { return shard_values_ ? shard_values(shard_) : values(own_); }

Buffer Bucket::reduced(Range range) const {
  if (!sum_) return gradients(range);
  return {sum_.get() + (range.first - shard_.first), range.count, Dtype::f32, workplace_->device()};
}

void Bucket::keep_shard() {
  const Buffer kept = shard_values(shard_);
  workplace_->copy(kept.data, values(shard_).data, kept.bytes());
}

void Bucket::add_reduced() {
  workplace_->add(sum_.get(), static_cast<const float*>(gradients(shard_).data), shard_.count);
}

void Bucket::zero_gradients() { workplace_->zero(gradients_.data, plan_.elements * sizeof(float)); }

void Bucket::zero_sum() { workplace_->zero(sum_.get(), shard_.count * sizeof(float)); }

float* Bucket::main_weights() {
  if (!has_main_copy()) return static_cast<float*>(own_values().data);
  if (!main_) widen_values();
  return main_.get();
}

float* Bucket::moment(int which) {
  if (!moments_[which]) moments_[which] = workplace_->allocate(own_.count);
  return moments_[which].get();
}

void Bucket::widen_values() {
  if (!has_main_copy()) return;
  if (!main_) main_ = workplace_->allocate(own_.count);
  workplace_->widen(plan_.dtype, static_cast<const std::uint16_t*>(own_values().data), main_.get(),
                    own_.count);
}

void Bucket::narrow_values() {
  if (!has_main_copy()) return;
  workplace_->narrow(plan_.dtype, main_weights(), static_cast<std::uint16_t*>(own_values().data),
                     own_.count);
}

MemoryUse Bucket::memory() const {
  MemoryUse use;
  use.weights = keeps_.whole_weights ? value_bytes() : shard_.count * size_of(plan_.dtype);
  if (keeps_.whole_gradients) use.gradients += gradient_bytes();
  if (sum_) use.gradients += shard_.count * sizeof(float);
  for (const auto* state : {&main_, &moments_[0], &moments_[1]})
    if (*state) use.optimizer += own_.count * sizeof(float);
  return use;
}

}  // namespace tutti::train
