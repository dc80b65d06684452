#include "train/gatherer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/clock.hpp"

namespace tutti::train {
namespace {

// More units at once would be memory that the third stage is there to save.
constexpr std::size_t kMostAhead = 4;

}  // namespace

void Gatherer::set_up(std::shared_ptr<Group> group, std::shared_ptr<BucketSlots> slots) {
  group_ = std::move(group);
  slots_ = std::move(slots);
  users_.assign(parts_.parameters.size(), 0);
  in_use_.assign(parts_.buckets.size(), 0);
  holds_.assign(parts_.buckets.size(), 0);
}

// ---- use

Status Gatherer::need(std::size_t parameter) {
  if (!parts_.layout.place[parameter]) return {};
  const std::size_t bucket = bucket_of(parameter);
  if (in_pass_ && !has_plan_) seen_.push_back({parameter, true, in_backward_, compute_ns()});
  ++users_[parameter];
  if (in_use_[bucket]++ > 0) return {};
  const std::int64_t begin = now_ns();
  Status status = in_pass_ && has_plan_ ? use(parameter, bucket) : gather_now(parameter, bucket);
  waited_ns_ += now_ns() - begin;
  if (!status.ok()) return status.annotate("gathering weights");
  return {};
}

// The next of its gathers in this pass.
Status Gatherer::use(std::size_t parameter, std::size_t bucket) {
  std::size_t gather = in_backward_ ? plan_.backward : 0;
  while (gather < end_of_pass() && (plan_.buckets[gather] != bucket || is_used_[gather])) ++gather;
  if (gather == end_of_pass())
    return {Code::invalid_argument,
            fmt::format("parameter '{}' is needed more often in this {} than in the first one, and "
                        "other ranks do not know of it; zero below 3 allows that",
                        parts_.parameters[parameter].name, in_backward_ ? "backward" : "forward")};
  is_used_[gather] = true;
  at_ = std::max(at_, gather + 1);
  while (launched_ <= gather) launch(launched_++);
  if (!status_.ok()) return status_;
  if (Status status = parts_.watch.await(parts_.buckets[bucket]->gather); !status.ok())
    return status;
  drop_unused();
  prefetch();
  return status_;
}

bool Gatherer::done(std::size_t parameter) {
  if (!parts_.layout.place[parameter] || users_[parameter] == 0) return false;
  const std::size_t bucket = bucket_of(parameter);
  if (in_pass_ && !has_plan_) seen_.push_back({parameter, false, in_backward_, compute_ns()});
  const bool is_last = --users_[parameter] == 0;
  if (--in_use_[bucket] == 0) {
    let_go(bucket);
    if (in_pass_ && has_plan_) prefetch();
  }
  return is_last;
}

void Gatherer::let_go(std::size_t bucket) {
  if (--holds_[bucket] == 0) parts_.buckets[bucket]->set_values({});
}

// ---- gathers

// A copy more where it is whole already: all ranks start as many.
void Gatherer::launch_all(std::size_t bucket) {
  Bucket& target = *parts_.buckets[bucket];
  auto memory = slots_->take(target.value_bytes());
  if (!memory.ok()) {
    if (status_.ok()) status_ = memory.status().annotate("memory for weights");
    return;
  }
  if (holds_[bucket] > 0) {
    spares_.push_back({*memory, {}});
    return start(spares_.back().pending, bucket, *memory);
  }
  target.set_values(*memory);
  start(target.gather, bucket, *memory);
}

void Gatherer::start(Pending& pending, std::size_t bucket, const SymmetricMemory& memory) {
  const Bucket& from = *parts_.buckets[bucket];
  const Buffer whole{memory.data, from.plan().elements, from.plan().dtype};
  parts_.watch.launch(pending, Stopwatch::Side::workplace, Collective::all_gather,
                      static_cast<int>(bucket), whole.bytes(), [&] {
                        CallOptions call;
                        call.name = from.name.c_str();
                        return group_->all_gather_async(from.shard_values(from.shard()), whole,
                                                        call);
                      });
}

// It holds its bucket for those behind it as well that are to find it whole.
void Gatherer::launch(std::size_t gather) {
  if (plan_.is_kept[gather]) return;
  const std::size_t bucket = plan_.buckets[gather];
  launch_all(bucket);
  ++holds_[bucket];
  for (std::size_t next = gather + 1; next < plan_.buckets.size(); ++next) {
    if (plan_.buckets[next] != bucket) continue;
    if (!plan_.is_kept[next]) break;
    ++holds_[bucket];
  }
}

void Gatherer::prefetch() {
  const std::size_t end = std::min(at_ + plan_.depth, plan_.buckets.size());
  while (launched_ < end) {
    const Bucket& next = *parts_.buckets[plan_.buckets[launched_]];
    if (!plan_.is_kept[launched_] && !slots_->has_room(next.value_bytes())) return;
    launch(launched_++);
  }
}

void Gatherer::begin_micro_batch() {
  in_pass_ = true;
  start_ahead();
}

void Gatherer::start_ahead() {
  if (!has_plan_ || is_running_) return;
  is_running_ = true;
  at_ = launched_ = 0;
  is_used_.assign(plan_.buckets.size(), false);
  while (launched_ < std::min(plan_.depth, plan_.backward)) launch(launched_++);
}

// What a pass that is over has left: for other ranks, or where this one has used less than the first time.
void Gatherer::drop_unused() {
  const std::size_t end = std::min(in_backward_ ? plan_.backward : 0, launched_);
  for (std::size_t gather = 0; gather < end; ++gather) {
    if (is_used_[gather]) continue;
    Pending& pending = parts_.buckets[plan_.buckets[gather]]->gather;
    if (!pending.work.done()) continue;
    (void)parts_.watch.await(pending).ok();  // of a group that has failed others tell
    is_used_[gather] = true;
    let_go(plan_.buckets[gather]);
  }
}

Status Gatherer::begin_backward() {
  if (has_plan_) {
    while (launched_ < plan_.used_backward) launch(launched_++);
    at_ = std::max(at_, plan_.used_backward);
  }
  in_backward_ = true;
  return status_;
}

void Gatherer::launch_rest() {
  if (is_running_)
    while (launched_ < plan_.buckets.size()) launch(launched_++);
}

void Gatherer::settle() {
  for (const auto& bucket : parts_.buckets) (void)bucket->gather.work.wait().ok();
  for (Spare& spare : spares_) (void)spare.pending.work.wait().ok();
}

Status Gatherer::end_pass() {
  launch_rest();
  Status first = status_;
  const auto await = [&](Pending& pending) {
    if (Status status = parts_.watch.await(pending); first.ok()) first = status;
  };
  for (const auto& bucket : parts_.buckets) {
    await(bucket->gather);
    bucket->set_values({});
  }
  for (Spare& spare : spares_) await(spare.pending);
  spares_.clear();
  std::fill(users_.begin(), users_.end(), 0);
  in_use_.assign(parts_.buckets.size(), 0);
  holds_.assign(parts_.buckets.size(), 0);
  in_pass_ = in_backward_ = is_running_ = false;
  return first.ok() ? first : first.annotate("gathering weights");
}

// ---- on demand

Status Gatherer::gather_now(std::size_t parameter, std::size_t bucket) {
  if (Status status = agree(parameter, bucket); !status.ok()) return status;
  launch_all(bucket);
  ++holds_[bucket];
  if (!status_.ok()) return status_;
  Pending& pending = holds_[bucket] > 1 ? spares_.back().pending : parts_.buckets[bucket]->gather;
  if (Status status = parts_.watch.await(pending); !status.ok()) return status;
  if (holds_[bucket] > 1) spares_.pop_back();
  return parts_.watch.await(parts_.buckets[bucket]->gather);
}

// Buckets may be of one size: nobody else would notice.
Status Gatherer::agree(std::size_t parameter, std::size_t bucket) {
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(group_->size()));
  const std::int64_t mine[] = {static_cast<std::int64_t>(bucket),
                               static_cast<std::int64_t>(parameter)};
  if (Status status = group_->all_gather(ConstBuffer::of(mine, 2), Buffer::of(all)); !status.ok())
    return status;
  for (std::size_t rank = 0; 2 * rank < all.size(); ++rank)
    if (all[2 * rank] != all[0])
      return {
          Code::mismatch,
          fmt::format("rank {} needs parameter '{}' and rank 0 '{}'; in the first micro-batch, and "
                      "outside of steps, all ranks must use the same in the same order",
                      rank, parts_.parameters[static_cast<std::size_t>(all[2 * rank + 1])].name,
                      parts_.parameters[static_cast<std::size_t>(all[1])].name)};
  return {};
}

// ---- learning

std::int64_t Gatherer::compute_ns() const { return now_ns() - waited_ns_; }

// A gather of what is kept costs nothing.
std::vector<PacedGather> Gatherer::paces() const {
  std::vector<PacedGather> paces;
  std::vector<std::int64_t> begins;
  std::vector<int> users(parts_.buckets.size(), 0);
  for (const WeightUse& use : seen_) {
    int& now = users[bucket_of(use.parameter)];
    if (!use.begins) {
      now = std::max(now - 1, 0);
      continue;
    }
    if (now++ > 0) continue;
    const Bucket& bucket = *parts_.buckets[bucket_of(use.parameter)];
    const auto prediction = group_->predict(Collective::all_gather, bucket.value_bytes());
    const double gather_s =
        prediction.ok() ? static_cast<double>(prediction->symmetric_time.count()) * 1e-9 : 0;
    begins.push_back(use.ns);
    paces.push_back({0, gather_s});
  }
  for (std::size_t i = 0; i + 1 < paces.size(); ++i)
    paces[i].compute_s = static_cast<double>(begins[i + 1] - begins[i]) * 1e-9;
  return paces;
}

Status Gatherer::learn(int depth) {
  const std::vector<PacedGather> foreseen = paces();
  std::vector<std::int64_t> words;  // depth, predicted ns, then uses
  if (depth == 0) depth = static_cast<int>(choose_depth(foreseen, kMostAhead));
  words.push_back(depth);
  words.push_back(
      static_cast<std::int64_t>(exposed_s(foreseen, static_cast<std::size_t>(depth)) * 1e9));
  for (const WeightUse& use : seen_)
    words.push_back(
        static_cast<std::int64_t>(use.parameter * 4 + use.begins * 2 + use.in_backward));
  auto count = static_cast<std::int64_t>(words.size());
  if (Status status = group_->broadcast(Buffer::of(&count, 1), 0); !status.ok()) return status;
  words.resize(static_cast<std::size_t>(count));
  if (Status status = group_->broadcast(Buffer::of(words), 0); !status.ok()) return status;
  seen_.clear();
  for (std::size_t i = 2; i < words.size(); ++i) {
    const auto word = static_cast<std::size_t>(words[i]);
    seen_.push_back({word / 4, (word & 2) != 0, (word & 1) != 0, 0});
  }
  in_use_.assign(parts_.buckets.size(), 0);
  holds_.assign(parts_.buckets.size(), 0);
  plan_ =
      make_pass_plan(parts_.layout, std::exchange(seen_, {}), static_cast<std::size_t>(words[0]));
  predicted_exposed_s_ = static_cast<double>(words[1]) * 1e-9;
  has_plan_ = true;
  return slots_->make_pool(plan_.bytes_at_once);
}

}  // namespace tutti::train
