// StepTimes as words, gathered beside the training; two ranks' words only ever have the same number
// when they list as many collectives, and the group itself finds out when they do not.
#include <fmt/format.h>

#include <deque>

#include "train/clock_offsets.hpp"
#include "tutti/train/overlap.hpp"

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {
namespace {

using Word = std::int64_t;
constexpr std::size_t kHeadWords = 8;
constexpr std::size_t kCallWords = 7;
// A caller that never takes would otherwise fill the memory.
constexpr std::size_t kMostPendingSteps = 64;

void encode(std::int64_t step, const StepTimes& times, std::vector<Word>& words) {
  words.assign({step, times.begin, times.end, times.forward, times.backward, times.update,
                times.last_backward, times.first_forward});
  for (const CollectiveTimes& call : times.collectives)
    words.insert(words.end(),
                 {static_cast<Word>(call.collective), call.bucket, static_cast<Word>(call.bytes),
                  call.joined, call.done, call.wait_begin, call.wait_end});
}

StepTimes decode(std::span<const Word> words) {
  StepTimes times{words[1], words[2], words[3], words[4], words[5], words[6], words[7], {}};
  times.collectives.reserve((words.size() - kHeadWords) / kCallWords);
  for (words = words.subspan(kHeadWords); !words.empty(); words = words.subspan(kCallWords))
    times.collectives.push_back({static_cast<Collective>(words[0]), static_cast<int>(words[1]),
                                 static_cast<std::size_t>(words[2]), words[3], words[4], words[5],
                                 words[6]});
  return times;
}

// One step under way; both vectors are lent to the group until `work` is done.
struct PendingStep {
  std::int64_t step = 0;
  std::vector<Word> mine;
  std::vector<Word> all;
  Work work;
};

class GatheringMeter final : public OverlapMeter {
 public:
  GatheringMeter(std::shared_ptr<Group> group, std::vector<std::int64_t> offsets)
      : group_(std::move(group)), offsets_(std::move(offsets)) {}
  // What is under way ends when all ranks have published it, or with the group.
  ~GatheringMeter() override {
    for (PendingStep& step : published_) (void)step.work.wait();
  }

  Status publish(std::int64_t step, const StepTimes& times) override;
  Result<std::optional<StepOverlap>> take(bool wait) override;

 private:
  Result<StepOverlap> compare(const PendingStep& step) const;

  std::shared_ptr<Group> group_;
  std::vector<std::int64_t> offsets_;
  std::deque<PendingStep> published_;  // oldest first
  PendingStep spare_;                  // for its memory
  Status failure_;                     // the first; every later call gives it
};

Status GatheringMeter::publish(std::int64_t step, const StepTimes& times) {
  if (!failure_.ok()) return failure_;
  if (published_.size() >= kMostPendingSteps)
    return failure_ = Status(Code::invalid_argument,
                             fmt::format("the times of {} steps, the oldest of them {}, were "
                                         "published and not taken; call take() once per step",
                                         published_.size(), published_.front().step));
  published_.push_back(std::exchange(spare_, PendingStep()));
  PendingStep& current = published_.back();
  current.step = step;
  encode(step, times, current.mine);
  current.all.resize(current.mine.size() * static_cast<std::size_t>(group_->size()));
  CallOptions options;
  options.name = "step times";
  current.work =
      group_->all_gather_async(ConstBuffer::of(current.mine), Buffer::of(current.all), options);
  return {};
}

Result<std::optional<StepOverlap>> GatheringMeter::take(bool wait) {
  if (!failure_.ok()) return failure_;
  if (published_.empty()) return std::optional<StepOverlap>();
  PendingStep& oldest = published_.front();
  if (!wait && !oldest.work.done()) return std::optional<StepOverlap>();
  failure_ = oldest.work.wait().annotate(
      fmt::format("times of step {} ({} collectives on this rank)", oldest.step,
                  (oldest.mine.size() - kHeadWords) / kCallWords));
  if (!failure_.ok()) return failure_;
  auto overlap = compare(oldest);
  if (!overlap.ok()) return failure_ = overlap.status();
  spare_ = std::move(oldest);
  published_.pop_front();
  return std::optional<StepOverlap>(std::move(*overlap));
}

Result<StepOverlap> GatheringMeter::compare(const PendingStep& step) const {
  std::vector<StepTimes> ranks;
  for (std::size_t rank = 0; rank < offsets_.size(); ++rank) {
    const std::span<const Word> words(step.all.data() + rank * step.mine.size(), step.mine.size());
    if (words[0] != step.step)
      return Status(Code::mismatch, fmt::format("times of step {}: rank {} published step {}",
                                                step.step, rank, words[0]));
    ranks.push_back(decode(words));
  }
  return compare_times(step.step, ranks, offsets_);
}

}  // namespace

Result<std::unique_ptr<OverlapMeter>> OverlapMeter::create(Group& group) {
  auto own = group.duplicate({"step times"});
  if (!own.ok()) return own.status().annotate("the overlap meter");
  auto offsets = measure_offsets(**own, clock_identity(), steady_clock());
  if (!offsets.ok()) return offsets.status().annotate("clock offsets of the overlap meter");
  if (trace::Sink* sink = group.trace())
    sink->clock_offset((*offsets)[static_cast<std::size_t>(group.rank())]);
  return std::unique_ptr<OverlapMeter>(new GatheringMeter(std::move(*own), std::move(*offsets)));
}

}  // namespace v1
}  // namespace tutti::train
