// Where a step's time went on all ranks, by two reductions beside the training: when the last one joined each
// collective, and what each rank makes of that. Both take as many messages as the logarithm of the ranks.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "train/clock_offsets.hpp"
#include "train/overlap_judge.hpp"
#include "tutti/train/overlap.hpp"

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {
namespace {

using Word = std::int64_t;
using std::chrono::nanoseconds;
// A caller that never takes would otherwise fill the memory.
constexpr std::size_t kMostPendingSteps = 64;
// How long an ending meter waits for the other ranks' messages; they take milliseconds unless a rank has failed.
constexpr auto kPatienceAtEnd = std::chrono::seconds(2);
// Before the times: what all ranks must say alike, and the same turned round: the largest of both is one's
// own only where all are.
constexpr std::size_t kHeadWords = 4;

// Which collectives they are, and how many of each before the next.
Word hash_of(const StepTimes& times) {
  std::uint64_t hash = 1469598103934665603ULL;
  for (const CollectiveTimes& call : times.collectives)
    for (const auto part :
         {static_cast<std::uint64_t>(call.collective), static_cast<std::uint64_t>(call.bucket + 1)})
      hash = (hash ^ part) * 1099511628211ULL;
  return static_cast<Word>(hash >> 2);
}

std::vector<Word> head_of(std::int64_t step, const StepTimes& times) {
  const Word hash = hash_of(times);
  return {step, -step, hash, -hash};
}

// One step under way; its vectors are lent to the groups until the works are done.
struct PendingStep {
  std::int64_t step = 0;
  StepTimes times;
  std::vector<Word> joined;  // behind the head: when the last rank did, on rank 0's clock
  Work joining;
  bool is_judged = false;
  Status judgement;
  RankOverlap mine;
  OverlapFields sum{}, max{};
  Work summing, comparing;
};

// A step is judged as soon as all ranks have published it, in whatever thread sees that: no rank waits for what another
// one's caller does next.
class ReducingMeter final : public OverlapMeter {
 public:
  ReducingMeter(std::shared_ptr<Group> joined, std::shared_ptr<Group> judged, std::int64_t offset)
      : joined_(std::move(joined)), judged_(std::move(judged)), offset_(offset) {}
  ~ReducingMeter() override;

  Status publish(std::int64_t step, const StepTimes& times) override;
  Result<std::optional<StepOverlap>> take(bool wait) override {
    return take_within(wait ? nanoseconds::max() : nanoseconds(0));
  }

 private:
  void judge_joined();
  Status judge(PendingStep& step);
  Result<std::optional<StepOverlap>> take_within(nanoseconds patience);
  Result<std::optional<StepOverlap>> finish(PendingStep& step, nanoseconds patience);

  // Two, so that both kinds of reductions are in the order of steps on all ranks.
  std::shared_ptr<Group> joined_, judged_;
  std::int64_t offset_;  // of this rank's clock
  // Held also where a step is judged: all ranks begin judged_'s reductions in the order of steps.
  std::mutex mutex_;
  std::condition_variable heard_;
  int unheard_ = 0;                    // steps that are to be judged when their times are here
  std::deque<PendingStep> published_;  // oldest first
  Status failure_;                     // the first; every later call gives it
};

ReducingMeter::~ReducingMeter() {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto last = now() + kPatienceAtEnd;
  while (failure_.ok() && !published_.empty() && now() < last) (void)take_within(last - now()).ok();
  if (failure_.ok() && !published_.empty())
    for (Group* group : {joined_.get(), judged_.get()})
      group->abort("its overlap meter ended, and others had not published their last step");
  for (PendingStep& step : published_) {
    (void)step.joining.wait();
    judge_joined();
    for (Work* work : {&step.summing, &step.comparing}) (void)work->wait();
  }
  std::unique_lock lock(mutex_);
  // bounded: every work is done, and whoever was told of it comes to this
  heard_.wait(lock, [&] { return unheard_ == 0; });
}

Status ReducingMeter::publish(std::int64_t step, const StepTimes& times) {
  if (!failure_.ok()) return failure_;
  if (published_.size() >= kMostPendingSteps)
    return failure_ = Status(Code::invalid_argument,
                             fmt::format("the times of {} steps, the oldest of them {}, were "
                                         "published and not taken; call take() once per step",
                                         published_.size(), published_.front().step));
  Work joining;
  {
    std::scoped_lock lock(mutex_);
    PendingStep& current = published_.emplace_back();
    current.step = step;
    current.times = times;
    current.joined = head_of(step, times);
    for (const CollectiveTimes& call : times.collectives)
      current.joined.push_back(call.joined + offset_);
    CallOptions options;
    options.name = "step times";
    joining = current.joining =
        joined_->all_reduce_async(Buffer::of(current.joined), ReduceOp::max, options);
    ++unheard_;
  }
  joining.on_complete([this](const Status&) {
    judge_joined();
    std::scoped_lock lock(mutex_);
    if (--unheard_ == 0) heard_.notify_all();
  });
  return {};
}

Result<std::optional<StepOverlap>> ReducingMeter::take_within(nanoseconds patience) {
  if (!failure_.ok()) return failure_;
  if (published_.empty()) return std::optional<StepOverlap>();
  PendingStep& oldest = published_.front();
  auto overlap = finish(oldest, patience);
  if (!overlap.ok())
    return failure_ = overlap.status().annotate(
               fmt::format("times of step {} ({} collectives on this rank)", oldest.step,
                           oldest.times.collectives.size()));
  if (*overlap) {
    std::scoped_lock lock(mutex_);
    published_.pop_front();
  }
  return overlap;
}

Result<std::optional<StepOverlap>> ReducingMeter::finish(PendingStep& step, nanoseconds patience) {
  const auto ends = [&](Work& work) {
    if (!work.done() && patience > nanoseconds(0)) (void)work.wait(patience);
    return work.done();
  };
  if (!ends(step.joining)) return std::optional<StepOverlap>();
  if (Status status = step.joining.status(); !status.ok()) return status;
  judge_joined();  // whoever was told of the times may not have come to it
  if (!step.judgement.ok()) return step.judgement;
  for (Work* work : {&step.summing, &step.comparing}) {
    if (!ends(*work)) return std::optional<StepOverlap>();
    if (Status status = work->status(); !status.ok()) return status;
  }
  for (double& field : step.sum) field /= judged_->size();
  StepOverlap result;
  result.step = step.step;
  result.ranks = {step.mine};
  result.mean = from_fields(step.sum);
  result.max = from_fields(for_max(step.max));
  return std::optional<StepOverlap>(std::move(result));
}

// Those whose times are here, oldest first.
void ReducingMeter::judge_joined() {
  std::scoped_lock lock(mutex_);
  for (PendingStep& step : published_) {
    if (!step.joining.done() || !step.joining.status().ok()) return;
    if (!step.is_judged) step.judgement = judge(step);
    step.is_judged = true;
    if (!step.judgement.ok()) return;
  }
}

Status ReducingMeter::judge(PendingStep& step) {
  const auto head = head_of(step.step, step.times);
  if (!std::equal(head.begin(), head.end(), step.joined.begin()))
    return {Code::mismatch,
            "ranks list different collectives, or published the times of another step"};
  const std::vector<Word> last_joined(step.joined.begin() + kHeadWords, step.joined.end());
  step.mine = judge_rank(step.times, last_joined, offset_);
  step.sum = fields_of(step.mine);
  step.max = for_max(step.sum);
  CallOptions options;
  options.name = "step overlap";
  step.summing = judged_->all_reduce_async(Buffer::of(step.sum), ReduceOp::sum, options);
  step.comparing = judged_->all_reduce_async(Buffer::of(step.max), ReduceOp::max, options);
  return {};
}

}  // namespace

Result<std::unique_ptr<OverlapMeter>> OverlapMeter::create(Group& group) {
  auto own = group.duplicate({"step times"});
  if (!own.ok()) return own.status().annotate("the overlap meter");
  auto judged = group.duplicate({"step overlap"});
  if (!judged.ok()) return judged.status().annotate("the overlap meter");
  auto offsets = measure_offsets(**own, clock_identity(), steady_clock());
  if (!offsets.ok()) return offsets.status().annotate("clock offsets of the overlap meter");
  const std::int64_t offset = (*offsets)[static_cast<std::size_t>(group.rank())];
  if (trace::Sink* sink = group.trace()) sink->clock_offset(offset);
  return std::unique_ptr<OverlapMeter>(
      new ReducingMeter(std::move(*own), std::move(*judged), offset));
}

}  // namespace v1
}  // namespace tutti::train
