// The order of use is learned in the first micro-batch and never trusted to the definition: a model
// may define what it uses first last (docs/algorithms/overlap.md).
#include <algorithm>

#include "train/replica.hpp"

namespace tutti::train {
namespace {

// A gradient that comes more than once is complete with the last one.
std::vector<std::size_t> by_last_gradient(const std::vector<std::size_t>& came,
                                          std::size_t parameters) {
  std::vector<std::size_t> order;
  std::vector<bool> listed(parameters, false);
  for (auto index = came.rbegin(); index != came.rend(); ++index) {
    if (listed[*index]) continue;
    listed[*index] = true;
    order.push_back(*index);
  }
  std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace

Status Replica::learn_order() {
  learning_ = false;
  auto order = share_order(
      *group_, {by_last_gradient(seen_order_.backward, parameters_.size()), seen_order_.forward});
  if (!order.ok()) return order.status();
  order_ = *std::move(order);
  BucketLayout layout = make_layout(parameters_, order_, options_.bucket_bytes, group_->size());
  if (layout.buckets == layout_.buckets)
    layout_ = std::move(layout);
  else if (Status status = move_to(std::move(layout)); !status.ok())
    return status;
  expect_gradients();
  return make_pools();
}

Result<Order> Replica::share_order(Group& group, const Order& mine) const {
  // [backward, then -1 … | forward, then -1 …]
  const std::size_t count = parameters_.size();
  std::vector<std::int64_t> words(2 * count, -1);
  std::copy(mine.backward.begin(), mine.backward.end(), words.begin());
  std::copy(mine.forward.begin(), mine.forward.end(),
            words.begin() + static_cast<std::ptrdiff_t>(count));
  if (Status status = group.broadcast(Buffer::of(words), 0); !status.ok()) return status;
  Order order;
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i] >= 0)
      (i < count ? order.backward : order.forward).push_back(static_cast<std::size_t>(words[i]));
  return order;
}

// Nothing is on its way yet and there is no state of the optimizer: values and gradients move.
Status Replica::move_to(BucketLayout layout) {
  auto buckets = make_buckets(*group_, layout);
  if (!buckets.ok()) return buckets.status();
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    if (!layout.place[index] || parameters_[index].count() == 0) continue;
    const Bucket& target = *(*buckets)[layout.place[index]->bucket];
    const Range range{layout.place[index]->offset, parameters_[index].count()};
    if (keeps_whole_weights())
      workplace_->copy(target.values(range).data, parameter(index).data, parameter(index).bytes());
    if (!keeps_whole_gradients()) continue;
    const Buffer from = bucket_of(index).gradients(range_of(index));
    workplace_->copy(target.gradients(range).data, from.data, from.bytes());
  }
  if (!keeps_whole_gradients())
    if (Status status = move_sums(layout, *buckets); !status.ok()) return status;
  if (!keeps_whole_weights())
    if (Status status = move_shards(layout, *buckets); !status.ok()) return status;
  workplace_->synchronize();
  if (Status status = workplace_->status(); !status.ok()) return status;
  // The old memory goes after the views have been set anew.
  std::swap(buckets_, *buckets);
  layout_ = std::move(layout);
  if (on_layout_) on_layout_();
  return {};
}

// Of the first micro-batch's gradients there are sums in shards already. Each bucket's is gathered for a
// moment, and every rank takes what belongs to its new shards.
Status Replica::move_sums(const BucketLayout& layout, const Buckets& buckets) {
  for (const auto& bucket : buckets_) {
    auto slot = gradient_slots_->take(bucket->gradient_bytes());
    if (!slot.ok()) return slot.status();
    bucket->set_gradients(*std::move(slot));
    const Buffer whole = bucket->gradients();
    Status status = group_->all_gather(bucket->reduced(bucket->shard()), whole, call_on(whole));
    if (!status.ok()) return status;
    each_kept(*bucket, layout, buckets, [&](const Bucket& target, Range part, std::size_t from) {
      workplace_->copy(target.reduced(part).data, bucket->gradients({from, part.count}).data,
                       part.count * sizeof(float));
    });
    workplace_->synchronize();
    bucket->set_gradients({});
  }
  return workplace_->status();
}

// The same with weights.
Status Replica::move_shards(const BucketLayout& layout, const Buckets& buckets) {
  for (const auto& bucket : buckets_) {
    auto slot = gatherer_.slots()->take(bucket->value_bytes());
    if (!slot.ok()) return slot.status();
    bucket->set_values(*std::move(slot));
    const Buffer whole = bucket->values();
    Status status = group_->all_gather(bucket->shard_values(bucket->shard()), whole);
    if (!status.ok()) return status;
    each_kept(*bucket, layout, buckets, [&](const Bucket& target, Range part, std::size_t from) {
      const Buffer kept = target.shard_values(part);
      workplace_->copy(kept.data, bucket->values({from, part.count}).data, kept.bytes());
    });
    bucket->set_values({});
  }
  return workplace_->status();
}

// What of a bucket's elements lies in this rank's new shards: where there, and from where here on.
template <class Take>
void Replica::each_kept(const Bucket& bucket, const BucketLayout& layout, const Buckets& buckets,
                        const Take& take) const {
  for (const std::size_t index : bucket.plan().parameters) {
    const Bucket& target = *buckets[layout.place[index]->bucket];
    const Range there{layout.place[index]->offset, parameters_[index].count()};
    const Range part = overlap_of(there, target.shard());
    if (part.count > 0) take(target, part, range_of(index).first + (part.first - there.first));
  }
}

std::vector<std::string> Replica::order() const {
  std::vector<std::string> names;
  for (const BucketPlan& bucket : layout_.buckets)
    for (std::size_t index : bucket.parameters) names.push_back(parameters_[index].name);
  return names;
}

}  // namespace tutti::train
