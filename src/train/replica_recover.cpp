// How a replica goes on in another group: when its own has failed, or when a lost rank is back.
//
// Survivors may stand a step apart: one has updated, another has failed in the agreement before. They
// choose the newest step of which they hold the whole state among them, and each puts what it has of
// it into a vector of bits that is otherwise zero; or-ed together they are the state. A newcomer has
// none of it; where nobody is lost beside, the live shards are the whole.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "train/agreement.hpp"
#include "train/kernels.hpp"
#include "train/replica.hpp"

namespace tutti::train {
namespace {

constexpr std::int64_t kNone = -1;

// What a survivor says of itself: whole numbers, so that they travel as they are.
struct Survivor {
  std::int64_t old_rank = 0;
  std::int64_t old_ranks = 0;    // in the group that it has trained in last
  std::int64_t step = 0;         // of its live state
  std::int64_t is_pristine = 0;  // that is as it was made, with weights alike on all ranks
  std::int64_t newest = kNone;   // of its shard's copies; the one before is there, too
  std::int64_t before = kNone;
  std::int64_t kept_newest = kNone;  // the same, of its neighbour's
  std::int64_t kept_before = kNone;

  bool is_newcomer() const { return old_ranks == 0; }
};

Result<std::vector<Survivor>> exchange(Group& group, const Survivor& mine) {
  constexpr std::size_t kWords = sizeof(Survivor) / sizeof(std::int64_t);
  std::vector<Survivor> all(static_cast<std::size_t>(group.size()));
  const auto* words = reinterpret_cast<const std::int64_t*>(&mine);
  Status status = group.all_gather(
      ConstBuffer::of(words, kWords),
      Buffer::of(reinterpret_cast<std::int64_t*>(all.data()), kWords * all.size()));
  if (!status.ok()) return status;
  return all;
}

// Every rank of the old group is there, after the same step.
bool is_complete(const std::vector<Survivor>& survivors, int old_ranks, std::int64_t step) {
  std::vector<bool> found(static_cast<std::size_t>(old_ranks), false);
  for (const Survivor& one : survivors) {
    if (one.is_newcomer()) continue;
    if (one.old_ranks != old_ranks || one.step != step) return false;
    found[static_cast<std::size_t>(one.old_rank)] = true;
  }
  return std::find(found.begin(), found.end(), false) == found.end();
}

// Every survivor has its own shard of that step, and somebody the shard of each rank that is lost.
bool is_whole(const std::vector<Survivor>& survivors, int old_ranks, std::int64_t step) {
  std::vector<bool> found(static_cast<std::size_t>(old_ranks), false);
  for (const Survivor& one : survivors) {
    if (one.is_newcomer()) continue;
    // It was not moved when others were, because a rank was lost meanwhile: its shard is another.
    if (one.old_ranks != old_ranks) return false;
    if (one.newest != step && one.before != step) return false;
    found[static_cast<std::size_t>(one.old_rank)] = true;
    if (one.kept_newest == step || one.kept_before == step)
      found[static_cast<std::size_t>((one.old_rank + old_ranks - 1) % old_ranks)] = true;
  }
  return std::find(found.begin(), found.end(), false) == found.end();
}

std::string lost_ranks(const std::vector<Survivor>& survivors, int old_ranks) {
  std::vector<int> lost;
  for (int rank = 0; rank < old_ranks; ++rank)
    if (std::none_of(survivors.begin(), survivors.end(),
                     [&](const Survivor& one) { return one.old_rank == rank; }))
      lost.push_back(rank);
  return fmt::format("{} {}", lost.size() == 1 ? "rank" : "ranks", fmt::join(lost, ", "));
}

}  // namespace

// ---- the copies

// By bucket: main weights, then each moment.
std::size_t Replica::shard_floats() const {
  std::size_t floats = 0;
  for (const auto& bucket : buckets_)
    floats += bucket->shard().count * (1 + moment_names(options_.optimizer).size());
  return floats;
}

void Replica::pack_shard(std::vector<float>& values) {
  float* at = values.data();
  const auto put = [&](const float* from, std::size_t count) {
    workplace_->copy(at, from, count * sizeof(float));
    at += count;
  };
  for (const auto& bucket : buckets_) {
    put(bucket->main_weights(), bucket->own().count);
    for (std::size_t m = 0; m < moment_names(options_.optimizer).size(); ++m)
      put(bucket->moment(static_cast<int>(m)), bucket->own().count);
  }
  workplace_->synchronize();
}

std::vector<float> Replica::on_host(const float* values, std::size_t count) const {
  std::vector<float> here(count);
  workplace_->copy_now(here.data(), values, count * sizeof(float));
  return here;
}

Status Replica::copy_shard() {
  if (!options_.buddy || !options_.use_distributed_optimizer) return {};
  if (!buddy_) {
    auto buddy = Buddy::create(*group_, shard_floats());
    if (!buddy.ok()) return buddy.status();
    buddy_ = *std::move(buddy);
  }
  ShardCopy& copy = buddy_->own_of_step(number_);
  pack_shard(copy.values);
  copy.step_counts = steps_;
  buddy_->exchange();
  return {};
}

// Not beside the next step, which a rank may be lost in: nobody else has this state.
Status Replica::copy_shard_now() {
  buddy_.reset();  // of another state, or for another group
  if (Status status = copy_shard(); !status.ok()) return status;
  return buddy_ ? buddy_->finish() : Status();
}

// ---- what is left, and what of it counts

Result<Replica::Remains> Replica::choose_remains(Group& survivors) {
  Survivor mine;
  if (is_newcomer_) {
    mine.step = kNone;
  } else {
    mine.old_rank = group_->rank();
    mine.old_ranks = group_->size();
    mine.step = number_;
    mine.is_pristine = is_pristine_;
  }
  if (buddy_ && !is_newcomer_) {
    (void)buddy_->finish().ok();  // it may have arrived all the same
    const auto [newest, before] = buddy_->own_steps();
    const auto [kept_newest, kept_before] = buddy_->neighbours_steps();
    mine.newest = newest;
    mine.before = before;
    mine.kept_newest = kept_newest;
    mine.kept_before = kept_before;
  }
  auto all = exchange(survivors, mine);
  if (!all.ok()) return all.status();

  Remains remains;
  const auto old =
      std::find_if(all->begin(), all->end(), [](const auto& one) { return !one.is_newcomer(); });
  if (old == all->end())
    return Status(Code::invalid_argument, "no rank has a state that newcomers could get");
  const int old_ranks = static_cast<int>(old->old_ranks);
  remains.root = static_cast<int>(old - all->begin());
  remains.has_newcomers =
      std::any_of(all->begin(), all->end(), [](const auto& one) { return one.is_newcomer(); });
  const auto choose_live = [&](const auto& better) {
    const auto best = std::max_element(all->begin(), all->end(), better);
    remains.step = best->step;
    remains.root = static_cast<int>(best - all->begin());
    return remains;
  };
  if (!options_.use_distributed_optimizer)
    return choose_live([](const Survivor& a, const Survivor& b) { return a.step < b.step; });
  remains.is_pristine = std::any_of(all->begin(), all->end(),
                                    [](const Survivor& one) { return one.is_pristine != 0; });
  if (remains.is_pristine)
    return choose_live(
        [](const Survivor& a, const Survivor& b) { return a.is_pristine < b.is_pristine; });
  if (remains.has_newcomers && is_complete(*all, old_ranks, old->step)) {
    remains.in_shards = true;
    remains.step = old->step;
    return remains;
  }
  remains.in_copies = true;
  for (const std::int64_t step : {old->newest, old->before})
    if (step != kNone && is_whole(*all, old_ranks, step)) {
      remains.step = step;
      return remains;
    }
  return Status(Code::peer_lost,
                fmt::format("the part of the optimizer's state that {} kept is lost with it; load "
                            "a checkpoint, and turn buddy on to have a copy next time",
                            lost_ranks(*all, old_ranks)));
}

// ---- putting it together

// What this rank has of one kind of state of one parameter, as bits.
void Replica::collect(const Remains& remains, std::size_t index, int kind, bool is_root,
                      std::vector<std::uint32_t>& bits) {
  std::fill(bits.begin(), bits.end(), 0);
  if (is_newcomer_) return;
  const Range whole = range_of(index);
  Bucket& bucket = bucket_of(index);
  const auto put = [&](const float* from, Range range) {  // `from`: of the range's first element
    const Range part = overlap_of(whole, range);
    if (part.count > 0)
      std::memcpy(bits.data() + (part.first - whole.first), from + (part.first - range.first),
                  part.count * sizeof(float));
  };
  if (remains.in_shards) return collect_own(bucket, kind, put);
  if (!remains.in_copies) {
    if (is_root) collect_live(bucket, kind, put);
    return;
  }
  // Packed by bucket, and within by kind.
  std::size_t at = 0;
  const std::size_t kinds = 1 + moment_names(options_.optimizer).size();
  for (std::size_t before = 0; before < layout_.place[index]->bucket; ++before)
    at += buckets_[before]->shard().count * kinds;
  const Range own = bucket.shard();
  at += own.count * static_cast<std::size_t>(kind);
  put(buddy_->own(remains.step)->values.data() + at, own);
  if (const ShardCopy* copy = buddy_->neighbours(remains.step))
    put(copy->values.data() + at,
        {own.count * static_cast<std::size_t>(buddy_->neighbour()), own.count});
}

template <class Put>
void Replica::collect_own(Bucket& bucket, int kind, const Put& put) {
  const float* values = kind == 0 ? bucket.main_weights() : bucket.moment(kind - 1);
  put(on_host(values, bucket.own().count).data(), bucket.own());
}

// Of a pristine one there are weights on every rank, and no other state yet.
template <class Put>
void Replica::collect_live(Bucket& bucket, int kind, const Put& put) {
  if (!options_.use_distributed_optimizer) return collect_own(bucket, kind, put);
  if (kind > 0) return;
  const Buffer values = bucket.values();
  if (!bucket.has_main_copy()) {
    const auto* all = static_cast<const float*>(values.data);
    return put(on_host(all, values.count).data(), Range{0, values.count});
  }
  std::vector<std::uint16_t> narrow(values.count);
  workplace_->copy_now(narrow.data(), values.data, values.bytes());
  std::vector<float> wide(values.count);
  widen(values.dtype, narrow.data(), wide.data(), wide.size());
  put(wide.data(), Range{0, values.count});
}

void Replica::restore(Bucket& bucket, Range range, int kind, const float* from) {
  const Range part = overlap_of(range, bucket.own());
  const float* mine = from + (part.first - range.first);
  const std::size_t at = part.first - bucket.own().first;
  const auto restore_part = [&](float* own) {
    if (part.count > 0) workplace_->copy_now(own + at, mine, part.count * sizeof(float));
  };
  if (kind > 0) return restore_part(bucket.moment(kind - 1));
  const Buffer values = bucket.values(range);
  if (!bucket.has_main_copy()) return workplace_->copy_now(values.data, from, values.bytes());
  std::vector<std::uint16_t> narrow(range.count);
  train::narrow(values.dtype, from, narrow.data(), range.count);
  workplace_->copy_now(values.data, narrow.data(), values.bytes());
  restore_part(bucket.main_weights());
}

Result<std::vector<std::int64_t>> Replica::counts_of(const Remains& remains, Group& survivors) {
  const bool has_copy = remains.in_copies && !is_newcomer_;
  const ShardCopy* copy = has_copy ? buddy_->own(remains.step) : nullptr;
  std::vector<std::int64_t> counts = copy != nullptr ? copy->step_counts : steps_;
  if (Status status = survivors.broadcast(Buffer::of(counts), remains.root); !status.ok())
    return status;
  return counts;
}

Result<Buckets> Replica::assemble(const Remains& remains, Group& survivors,
                                  const BucketLayout& layout) {
  auto buckets = make_buckets(survivors, layout);
  if (!buckets.ok()) return buckets.status();
  const int kinds = 1 + static_cast<int>(moment_names(options_.optimizer).size());
  std::vector<std::uint32_t> bits;
  std::vector<float> values;
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    if (!layout.place[index] || parameters_[index].count() == 0) continue;
    Bucket& target = *(*buckets)[layout.place[index]->bucket];
    const Range range{layout.place[index]->offset, parameters_[index].count()};
    bits.resize(range.count);
    values.resize(range.count);
    for (int kind = 0; kind < kinds; ++kind) {
      collect(remains, index, kind, survivors.rank() == remains.root, bits);
      if (Status status = survivors.all_reduce(Buffer::of(bits), ReduceOp::bor); !status.ok())
        return status;
      std::memcpy(values.data(), bits.data(), bits.size() * sizeof(float));
      restore(target, range, kind, values.data());
    }
  }
  return buckets;
}

// What a newcomer must have like the others, and what they have found out since they began.
Status Replica::bring_up(Group& group) {
  DataParallelOptions alike = options_;
  alike.bucket_bytes = 0;
  alike.order_hint.clear();
  if (Status status = agree(group, alike); !status.ok()) return status;
  auto bytes = static_cast<std::int64_t>(options_.bucket_bytes);
  if (Status status = group.broadcast(Buffer::of(&bytes, 1), 0); !status.ok()) return status;
  options_.bucket_bytes = static_cast<std::size_t>(bytes);
  return broadcast_frozen(group);
}

// ---- all of it

Result<std::int64_t> Replica::join(Groups others) {
  if (group_->size() != 1 || !is_pristine_)
    return Status(
        Code::invalid_argument,
        "only a layer that was made in a group of one, and has not been trained, can join");
  is_newcomer_ = true;
  return recover(std::move(others));
}

Result<std::int64_t> Replica::recover(Groups survivors) {
  const bool is_cut = norm_group_ || !sum_groups_.empty() || !survivors.sums.empty() ||
                      (survivors.everyone && survivors.everyone != survivors.data);
  if (is_cut)
    return Status(Code::unsupported,
                  "a model that is cut over ranks cannot go on on another number of them");
  if (!keeps_whole_weights())
    return Status(Code::unsupported,
                  "zero = 3 cannot go on on another number of ranks: a lost rank's weights have no "
                  "copy; load a checkpoint there");
  if (!survivors.data) return Status(Code::invalid_argument, "recover() needs a data group");
  settle_everything();
  auto group =
      survivors.data->duplicate(bucket_group_of(*survivors.data, options_.reduction_order));
  if (!group.ok()) return group.status();
  auto remains = choose_remains(**group);
  if (!remains.ok()) return remains.status();
  if (remains->has_newcomers)
    if (Status status = bring_up(**group); !status.ok()) return status;
  auto counts = counts_of(*remains, **group);
  if (!counts.ok()) return counts.status();
  // Rank 0's order is everybody's: one may have learned it when another had not.
  std::int64_t learning = learning_;
  if (Status status = (*group)->broadcast(Buffer::of(&learning, 1), 0); !status.ok()) return status;
  auto order = share_order(**group, order_);
  if (!order.ok()) return order.status();
  BucketLayout layout = make_layout(parameters_, *order, options_.bucket_bytes, (*group)->size());
  auto buckets = assemble(*remains, **group, layout);
  if (!buckets.ok()) return buckets.status();
  if (Status status = workplace_->status(); !status.ok()) return status;

  steps_ = *std::move(counts);
  is_pristine_ = remains->is_pristine;
  begin_again(*std::move(group), std::move(layout), *std::move(buckets), remains->step);
  learning_ = learning != 0;
  order_ = *std::move(order);
  if (Status status = make_slots(); !status.ok()) return fail(status);
  // A pristine one needs no copies, and is yet to learn its layout.
  if (!is_pristine_)
    if (Status status = copy_shard_now(); !status.ok()) return fail(status);
  return remains->step;
}

// As after a step of that number.
void Replica::begin_again(std::shared_ptr<Group> group, BucketLayout layout, Buckets buckets,
                          std::int64_t step) {
  (void)workplace_->take_findings(buckets_.size());  // of the step that was not finished
  std::swap(buckets_, buckets);
  layout_ = std::move(layout);
  status_ = Status();
  if (on_layout_) on_layout_();
  for (std::size_t index = 0; index < parameters_.size(); ++index) set_open(index, true);
  buckets.clear();  // the old memory goes before its group
  group_ = std::move(group);
  control_ = Control(group_->rank(), group_->size(), parameters_.size());
  watch_ = Stopwatch(workplace_);
  watch_.trace_to(group_->trace());
  calls_.restart();
  std::fill(used_.begin(), used_.end(), false);
  seen_order_ = {};
  number_ = step;
  is_newcomer_ = false;
  reducer_.end_step();
  expect_gradients();
}

}  // namespace tutti::train
