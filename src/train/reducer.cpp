#include "train/reducer.hpp"

#include <algorithm>

namespace tutti::train {

void Reducer::begin_round() {
  next_ = 0;
  for (const auto& bucket : parts_.buckets) {
    const auto& members = bucket->plan().parameters;
    bucket->missing = static_cast<std::size_t>(
        std::count_if(members.begin(), members.end(),
                      [&](std::size_t index) { return parts_.parameters[index].count() > 0; }));
  }
}

// Whoever waits waits for what it has launched itself, and all launch in one order: so that comes.
Result<SymmetricMemory> Reducer::take_slot(std::size_t index) {
  const std::size_t bytes = parts_.buckets[index]->gradient_bytes();
  while (!slots_->has_room(bytes)) {
    if (launched_.empty() && may_go_again_ && next_ < index) launch(next_++);
    if (launched_.empty()) break;
    if (Status status = settle(launched_.front()); !status.ok()) return status;
  }
  auto slot = slots_->take(bytes);
  if (!slot.ok()) return slot.status().annotate("memory for gradients");
  return slot;
}

Result<Buffer> Reducer::open(std::size_t index) {
  Bucket& bucket = *parts_.buckets[index];
  if (bucket.keeps().whole_gradients) return bucket.gradients();
  // Of the micro-batch before, or one that came too early.
  if (Status status = settle(index); !status.ok()) return status;
  if (!bucket.has_gradients()) {
    auto slot = take_slot(index);
    if (!slot.ok()) return slot.status();
    bucket.set_gradients(*std::move(slot));
    bucket.zero_gradients();
  }
  return bucket.gradients();
}

void Reducer::complete(std::size_t bucket) {
  if (--parts_.buckets[bucket]->missing > 0) return;
  if (!parts_.options.overlap_grad_reduce) return;
  while (next_ < parts_.buckets.size() && parts_.buckets[next_]->missing == 0) launch(next_++);
}

void Reducer::launch_rest() {
  while (next_ < parts_.buckets.size()) launch(next_++);
  ++rounds_;
}

void Reducer::launch(std::size_t index) {
  Bucket& bucket = *parts_.buckets[index];
  // Nothing was added: its zeros are this rank's contribution. What fails here fails in settle().
  if (const auto opened = open(index); !opened.ok()) {
    bucket.reduction.work = Work::finished(opened.status());
    return;
  }
  look_at_gradients(bucket, index);
  if (bucket.plan().sum >= 0) launch_sum(bucket, index);
  launch_reduction(bucket, index);
}

// This rank's own, as long as they are.
void Reducer::look_at_gradients(const Bucket& bucket, std::size_t index) {
  if (!parts_.options.check_for_nan) return;
  const Buffer gradients = bucket.gradients();
  parts_.workplace->find_not_finite(index, static_cast<const float*>(gradients.data),
                                    gradients.count);
}

CallOptions Reducer::call_on(const Bucket& bucket) const {
  CallOptions call;
  call.name = bucket.name.c_str();
  if (parts_.workplace->device() != Device::cpu) call.stream = parts_.workplace->stream();
  return call;
}

// Added up in place, by all ranks of the sum.
void Reducer::launch_sum(Bucket& bucket, std::size_t index) {
  Group& group = parts_.sum_groups[static_cast<std::size_t>(bucket.plan().sum)]->group();
  const Buffer gradients = bucket.gradients();
  parts_.watch.launch(bucket.sum, Stopwatch::Side::workplace, Collective::all_reduce,
                      static_cast<int>(index), gradients.bytes(), [&] {
                        return group.all_reduce_async(gradients, ReduceOp::sum, call_on(bucket));
                      });
}

void Reducer::launch_reduction(Bucket& bucket, std::size_t index) {
  const Buffer sent = bucket.sent_gradients();
  const Collective collective =
      bucket.keeps().whole_state ? Collective::all_reduce : Collective::reduce_scatter;
  const auto start = [&] {
    CallOptions call = call_on(bucket);
    if (bucket.plan().sum >= 0) call.after(bucket.sum.work);
    if (collective == Collective::all_reduce)
      return parts_.group->all_reduce_async(sent, bucket.gradients(), ReduceOp::sum, call);
    return parts_.group->reduce_scatter_async(sent, bucket.gradients(bucket.shard()), ReduceOp::sum,
                                              call);
  };
  parts_.watch.launch(bucket.reduction, Stopwatch::Side::workplace, collective,
                      static_cast<int>(index), sent.bytes(), start);
  launched_.push_back(index);
}

Status Reducer::settle(std::size_t index) {
  Bucket& bucket = *parts_.buckets[index];
  if (bucket.reduction.waited) return bucket.reduction.work.status();
  std::erase(launched_, index);
  if (Status status = parts_.watch.await(bucket.sum); !status.ok())
    return status.annotate("adding up gradients");
  if (Status status = parts_.watch.await(bucket.reduction); !status.ok())
    return status.annotate("reducing gradients");
  if (!bucket.keeps().sum) return {};
  bucket.add_reduced();
  if (bucket.keeps().whole_gradients)
    bucket.zero_gradients();
  else
    bucket.set_gradients({});
  return parts_.workplace->status();
}

Status Reducer::settle_all() {
  for (std::size_t index = 0; index < parts_.buckets.size(); ++index)
    if (Status status = settle(index); !status.ok()) return status;
  return {};
}

}  // namespace tutti::train
