#include "train/bucket.hpp"

#include <algorithm>
#include <cstring>

#include "train/kernels.hpp"

namespace tutti::train {

Range overlap_of(Range a, Range b) {
  const std::size_t first = std::max(a.first, b.first);
  const std::size_t end = std::min(a.first + a.count, b.first + b.count);
  return {first, end > first ? end - first : 0};
}

Result<std::unique_ptr<Bucket>> Bucket::create(Group& group, BucketPlan plan, bool sharded) {
  std::unique_ptr<Bucket> bucket(new Bucket);
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t part = plan.elements / ranks;
  bucket->shard_ = {part * static_cast<std::size_t>(group.rank()), part};
  bucket->own_ = sharded ? bucket->shard_ : Range{0, plan.elements};
  auto values = group.allocate(plan.elements * size_of(plan.dtype));
  if (!values.ok()) return values.status().annotate("memory for a bucket of parameters");
  auto gradients = group.allocate(plan.elements * sizeof(float));
  if (!gradients.ok()) return gradients.status().annotate("memory for a bucket of gradients");
  bucket->values_ = *std::move(values);
  bucket->gradients_ = *std::move(gradients);
  bucket->plan_ = std::move(plan);
  return bucket;
}

Buffer Bucket::values() const { return values({0, plan_.elements}); }
Buffer Bucket::gradients() const { return gradients({0, plan_.elements}); }

Buffer Bucket::values(Range range) const {
  auto* data = static_cast<std::byte*>(values_.data) + range.first * size_of(plan_.dtype);
  return {data, range.count, plan_.dtype};
}

Buffer Bucket::gradients(Range range) const {
  return Buffer::of(static_cast<float*>(gradients_.data) + range.first, range.count);
}

void Bucket::zero_gradients() { std::memset(gradients_.data, 0, plan_.elements * sizeof(float)); }

float* Bucket::main_weights() {
  if (!has_main_copy()) return static_cast<float*>(values(own_).data);
  if (main_.empty()) widen_values();
  return main_.data();
}

float* Bucket::moment(int which) {
  std::vector<float>& moment = moments_[which];
  if (moment.empty()) moment.resize(own_.count, 0.0F);
  return moment.data();
}

void Bucket::widen_values() {
  if (!has_main_copy()) return;
  main_.resize(own_.count);
  widen(static_cast<const std::uint16_t*>(values(own_).data), main_.data(), own_.count);
}

void Bucket::narrow_values() {
  if (!has_main_copy()) return;
  narrow(main_weights(), static_cast<std::uint16_t*>(values(own_).data), own_.count);
}

}  // namespace tutti::train
