// What a step's times mean: docs/algorithms/overlap.md has the picture.
#include "tutti/train/overlap.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <map>

#include "train/intervals.hpp"
#include "train/overlap_judge.hpp"

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {
namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

bool is_reduction(const CollectiveTimes& call) {
  return call.bucket >= 0 && (call.collective == Collective::reduce_scatter ||
                              call.collective == Collective::all_reduce);
}
bool is_gather(const CollectiveTimes& call) { return call.collective == Collective::all_gather; }
bool is_any(const CollectiveTimes&) { return true; }

std::string name_of(const CollectiveTimes& call) {
  if (call.bucket < 0) return fmt::format("{} of the control vector", to_string(call.collective));
  return fmt::format("{} of bucket {}", to_string(call.collective), call.bucket);
}

// All ranks list what rank 0 lists.
Status compare_lists(std::int64_t step, std::span<const StepTimes> ranks) {
  const auto& first = ranks.front().collectives;
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    const auto& mine = ranks[rank].collectives;
    if (mine.size() != first.size())
      return Status(Code::mismatch,
                    fmt::format("times of step {}: rank {} lists {} collectives, rank 0 lists {}",
                                step, rank, mine.size(), first.size()));
    for (std::size_t i = 0; i < first.size(); ++i)
      if (mine[i].collective != first[i].collective || mine[i].bucket != first[i].bucket)
        return Status(Code::mismatch,
                      fmt::format("times of step {}: collective {} of rank {} is {}, of rank 0 {}",
                                  step, i, rank, name_of(mine[i]), name_of(first[i])));
  }
  return {};
}

// Per collective: when the last rank had joined it, on rank 0's clock.
std::vector<std::int64_t> last_joiners(std::span<const StepTimes> ranks,
                                       std::span<const std::int64_t> offsets) {
  std::vector<std::int64_t> last(ranks.front().collectives.size(),
                                 std::numeric_limits<std::int64_t>::min());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (std::size_t i = 0; i < last.size(); ++i)
      last[i] = std::max(last[i], ranks[rank].collectives[i].joined + offsets[rank]);
  return last;
}

// One rank's step on that rank's own clock.
class RankJudge {
 public:
  RankJudge(const StepTimes& times, const std::vector<std::int64_t>& last_joined,
            std::int64_t offset)
      : times_(times), last_joined_(last_joined), offset_(offset) {}

  RankOverlap judge() const {
    RankOverlap result;
    result.step_s = seconds(times_.end - times_.begin);
    result.forward_s = seconds(times_.forward);
    result.backward_s = seconds(times_.backward);
    result.update_s = seconds(times_.update);
    result.wait_s = seconds(wait());
    result.skew_s = seconds(skew());
    result.exposed_s = result.wait_s - result.skew_s;
    result.wire_s = seconds(wire(is_any));
    result.reduce_wire_s = seconds(wire(is_reduction));
    result.gather_wire_s = seconds(wire(is_gather));
    result.tail_s = seconds(tail());
    if (result.wire_s > 0)
      result.hidden = std::clamp(1 - result.exposed_s / result.wire_s, 0.0, 1.0);
    result.bound_s = seconds(bound());
    return result;
  }

 private:
  std::int64_t last_joined(std::size_t i) const { return last_joined_[i] - offset_; }
  Interval on_wire(std::size_t i) const { return {last_joined(i), times_.collectives[i].done}; }

  std::int64_t wait() const {
    std::vector<Interval> waits;
    for (const CollectiveTimes& call : times_.collectives)
      waits.push_back({call.wait_begin, call.wait_end});
    return length_of_union(std::move(waits));
  }
  std::int64_t skew() const {
    std::vector<Interval> parts;
    for (std::size_t i = 0; i < times_.collectives.size(); ++i) {
      const CollectiveTimes& call = times_.collectives[i];
      parts.push_back(before({call.wait_begin, call.wait_end}, last_joined(i)));
    }
    return length_of_union(std::move(parts));
  }
  template <class Counts>
  std::int64_t wire(Counts counts) const {
    std::vector<Interval> stretches;
    for (std::size_t i = 0; i < times_.collectives.size(); ++i)
      if (counts(times_.collectives[i])) stretches.push_back(on_wire(i));
    return length_of_union(std::move(stretches));
  }
  // The last bucket is complete when backward ends. What its reduction then takes for itself, not
  // counting the queue of those before it, no schedule can move.
  std::int64_t tail() const {
    std::int64_t done_before = std::numeric_limits<std::int64_t>::min();
    std::int64_t tail = 0;
    for (std::size_t i = 0; i < times_.collectives.size(); ++i) {
      if (!is_reduction(times_.collectives[i])) continue;
      Interval own = on_wire(i);
      own.begin = std::max(own.begin, done_before);
      tail = own.length();
      done_before = std::max(done_before, times_.collectives[i].done);
    }
    return tail;
  }
  // The first micro-batch's forward can hide gathers, the last one's backward reductions: the other
  // micro-batches are in the step as they are.
  std::int64_t bound() const {
    const std::int64_t last = tail();
    return (times_.forward - times_.first_forward) +
           std::max(times_.first_forward, wire(is_gather)) +
           (times_.backward - times_.last_backward) +
           std::max(times_.last_backward, wire(is_reduction) - last) + times_.update + last;
  }

  const StepTimes& times_;
  const std::vector<std::int64_t>& last_joined_;
  std::int64_t offset_;
};

using Field = double RankOverlap::*;
constexpr Field kFields[] = {
    &RankOverlap::step_s,        &RankOverlap::forward_s, &RankOverlap::backward_s,
    &RankOverlap::update_s,      &RankOverlap::wait_s,    &RankOverlap::skew_s,
    &RankOverlap::exposed_s,     &RankOverlap::wire_s,    &RankOverlap::reduce_wire_s,
    &RankOverlap::gather_wire_s, &RankOverlap::tail_s,    &RankOverlap::hidden,
    &RankOverlap::bound_s,
};
static_assert(sizeof kFields / sizeof *kFields * sizeof(double) == sizeof(RankOverlap));

void summarise(StepOverlap& step) {
  step.max = step.mean = step.ranks.front();
  for (const Field field : kFields) {
    double sum = 0;
    for (const RankOverlap& rank : step.ranks) {
      sum += rank.*field;
      step.max.*field = field == &RankOverlap::hidden ? std::min(step.max.*field, rank.*field)
                                                      : std::max(step.max.*field, rank.*field);
    }
    step.mean.*field = sum / static_cast<double>(step.ranks.size());
  }
}

}  // namespace

Result<StepOverlap> compare_times(std::int64_t step, std::span<const StepTimes> ranks,
                                  std::span<const std::int64_t> offsets) {
  if (ranks.empty() || ranks.size() != offsets.size())
    return Status(Code::invalid_argument,
                  fmt::format("times of step {}: {} ranks and {} clock offsets; give one per rank",
                              step, ranks.size(), offsets.size()));
  if (Status status = compare_lists(step, ranks); !status.ok()) return status;
  const std::vector<std::int64_t> last_joined = last_joiners(ranks, offsets);
  StepOverlap result;
  result.step = step;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    result.ranks.push_back(judge_rank(ranks[rank], last_joined, offsets[rank]));
  summarise(result);
  return result;
}

std::vector<BucketWaits> exposed_by_bucket(const StepTimes& times) {
  std::map<int, BucketWaits> waits;
  for (const CollectiveTimes& call : times.collectives) {
    if (call.bucket < 0) continue;
    BucketWaits& own = waits[call.bucket];
    own.bucket = call.bucket;
    (is_gather(call) ? own.gather_s : own.reduce_s) += seconds(call.wait_end - call.wait_begin);
  }
  std::vector<BucketWaits> list;
  for (const auto& [bucket, own] : waits) list.push_back(own);
  return list;
}

}  // namespace v1

RankOverlap judge_rank(const StepTimes& times, const std::vector<std::int64_t>& last_joined,
                       std::int64_t offset) {
  return RankJudge(times, last_joined, offset).judge();
}

OverlapFields fields_of(const RankOverlap& rank) {
  OverlapFields fields;
  std::memcpy(fields.data(), &rank, sizeof rank);
  return fields;
}

RankOverlap from_fields(const OverlapFields& fields) {
  RankOverlap rank;
  std::memcpy(static_cast<void*>(&rank), fields.data(), sizeof rank);
  return rank;
}

OverlapFields for_max(OverlapFields fields) {
  double& hidden = fields[offsetof(RankOverlap, hidden) / sizeof(double)];
  hidden = -hidden;
  return fields;
}

}  // namespace tutti::train
