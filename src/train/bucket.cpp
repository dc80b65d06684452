#include "train/bucket.hpp"

#include <algorithm>

namespace tutti::train {

Range overlap_of(Range a, Range b) {
  const std::size_t first = std::max(a.first, b.first);
  const std::size_t end = std::min(a.first + a.count, b.first + b.count);
  return {first, end > first ? end - first : 0};
}

Result<std::unique_ptr<Bucket>> Bucket::create(Group& group, BucketPlan plan, bool sharded,
                                               std::shared_ptr<Workplace> workplace) {
  std::unique_ptr<Bucket> bucket(new Bucket);
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t part = plan.elements / ranks;
  bucket->shard_ = {part * static_cast<std::size_t>(group.rank()), part};
  bucket->own_ = sharded ? bucket->shard_ : Range{0, plan.elements};
  auto values = group.allocate(plan.elements * size_of(plan.dtype), workplace->device());
  if (!values.ok()) return values.status().annotate("memory for a bucket of parameters");
  auto gradients = group.allocate(plan.elements * sizeof(float), workplace->device());
  if (!gradients.ok()) return gradients.status().annotate("memory for a bucket of gradients");
  bucket->values_ = *std::move(values);
  bucket->gradients_ = *std::move(gradients);
  bucket->plan_ = std::move(plan);
  bucket->workplace_ = std::move(workplace);
  return bucket;
}

Buffer Bucket::values() const { return values({0, plan_.elements}); }
Buffer Bucket::gradients() const { return gradients({0, plan_.elements}); }

Buffer Bucket::values(Range range) const {
  auto* data = static_cast<std::byte*>(values_.data) + range.first * size_of(plan_.dtype);
  return {data, range.count, plan_.dtype, workplace_->device()};
}

Buffer Bucket::gradients(Range range) const {
  auto* data = static_cast<float*>(gradients_.data) + range.first;
  return {data, range.count, Dtype::f32, workplace_->device()};
}

void Bucket::zero_gradients() { workplace_->zero(gradients_.data, plan_.elements * sizeof(float)); }

float* Bucket::main_weights() {
  if (!has_main_copy()) return static_cast<float*>(values(own_).data);
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
  workplace_->widen(static_cast<const std::uint16_t*>(values(own_).data), main_.get(), own_.count);
}

void Bucket::narrow_values() {
  if (!has_main_copy()) return;
  workplace_->narrow(main_weights(), static_cast<std::uint16_t*>(values(own_).data), own_.count);
}

MemoryUse Bucket::memory() const {
  MemoryUse use;
  use.weights = plan_.elements * size_of(plan_.dtype);
  use.gradients = plan_.elements * sizeof(float);
  for (const auto* state : {&main_, &moments_[0], &moments_[1]})
    if (*state) use.optimizer += own_.count * sizeof(float);
  return use;
}

}  // namespace tutti::train
