#include "tutti/train/metrics_bus.hpp"

#include <fmt/format.h>

#include <deque>

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {
namespace {

constexpr std::size_t kMostUnderWay = 2;
// A caller that never takes would otherwise fill the memory; one that takes every 1,000 steps may.
constexpr std::size_t kMostPendingMetrics = 1024;
// In a vector: the two halves of the hash, the values, zeros up to a whole block. Sums of 32-bit
// numbers are exact in f64 for up to two million ranks. Blocks, so that a rank which adds a name more
// still sends as much as the others, and all learn by the hash in which step it was.
constexpr std::size_t kHashes = 2;
constexpr std::size_t kVectorBlock = 16;

// FNV-1a, 64 bits.
class Hash {
 public:
  void add(std::string_view bytes) {
    for (const char byte : bytes) add_byte(static_cast<std::uint8_t>(byte));
    add_byte(0);  // "ab" "c" is not "a" "bc"
  }
  void add(std::int64_t number) {
    for (int shift = 0; shift < 64; shift += 8)
      add_byte(static_cast<std::uint8_t>(static_cast<std::uint64_t>(number) >> shift));
  }
  double low() const { return static_cast<double>(value_ & 0xffffffffU); }
  double high() const { return static_cast<double>(value_ >> 32); }

 private:
  void add_byte(std::uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3U; }
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

// One step: what was added, and then its sums. `vector` is lent to the group until `work` is done.
struct PendingMetrics {
  std::int64_t step = 0;
  std::vector<std::string> names;
  std::vector<double> vector = std::vector<double>(kHashes);
  Hash hash;
  Work work;
};

class FusedBus final : public MetricsBus {
 public:
  FusedBus(std::shared_ptr<Group> group, bool asynchronous)
      : group_(std::move(group)), asynchronous_(asynchronous) {}
  // What is under way ends when all ranks have published it, or with the group.
  ~FusedBus() override {
    for (PendingMetrics& step : published_) (void)step.work.wait();
  }

  void add(std::string_view name, double value) override;
  Status publish(std::int64_t step) override;
  Result<std::optional<Metrics>> take(bool wait) override;

 private:
  Status wait_for_room();
  Status start(std::int64_t step);
  Status finish(PendingMetrics& step);
  Status mismatch(const PendingMetrics& step) const;
  void recycle(PendingMetrics step);

  std::shared_ptr<Group> group_;
  bool asynchronous_;
  PendingMetrics next_;
  std::deque<PendingMetrics> published_;  // oldest first
  std::vector<PendingMetrics> spare_;     // taken ones, for their memory
  Status failure_;                        // the first; every later call gives it
};

void FusedBus::add(std::string_view name, double value) {
  for (std::size_t i = 0; i < next_.names.size(); ++i) {
    if (next_.names[i] != name) continue;
    next_.vector[kHashes + i] += value;
    return;
  }
  next_.names.emplace_back(name);
  next_.vector.push_back(value);
}

Status FusedBus::publish(std::int64_t step) {
  if (failure_.ok()) failure_ = wait_for_room();
  if (failure_.ok()) failure_ = start(step);
  return failure_;
}

Status FusedBus::wait_for_room() {
  if (published_.size() >= kMostPendingMetrics)
    return Status(Code::invalid_argument,
                  fmt::format("the metrics of {} steps, the oldest of them {}, were published and "
                              "not taken; call take() once per step",
                              published_.size(), published_.front().step));
  if (published_.size() < kMostUnderWay) return {};
  PendingMetrics& before_last = published_[published_.size() - kMostUnderWay];
  return before_last.work.wait().annotate(fmt::format("metrics of step {}", before_last.step));
}

Status FusedBus::start(std::int64_t step) {
  next_.step = step;
  next_.hash = Hash();
  next_.hash.add(step);
  for (const std::string& name : next_.names) next_.hash.add(name);
  next_.vector[0] = next_.hash.low();
  next_.vector[1] = next_.hash.high();
  next_.vector.resize((next_.vector.size() + kVectorBlock - 1) / kVectorBlock * kVectorBlock);
  published_.push_back(std::move(next_));
  next_ = PendingMetrics();
  if (!spare_.empty()) {
    next_ = std::move(spare_.back());
    spare_.pop_back();
  }
  PendingMetrics& current = published_.back();
  CallOptions options;
  options.name = "metrics";
  current.work = group_->all_reduce_async(Buffer::of(current.vector), ReduceOp::sum, options);
  return asynchronous_ ? Status() : finish(current);
}

// Waits, and checks that everybody spoke of the same.
Status FusedBus::finish(PendingMetrics& step) {
  if (Status status = step.work.wait(); !status.ok())
    return status.annotate(fmt::format("metrics of step {}", step.step));
  const double ranks = group_->size();
  const bool same =
      step.vector[0] == ranks * step.hash.low() && step.vector[1] == ranks * step.hash.high();
  return same ? Status() : mismatch(step);
}

Status FusedBus::mismatch(const PendingMetrics& step) const {
  std::string names;
  for (const std::string& name : step.names) names += (names.empty() ? "" : ", ") + name;
  return Status(Code::mismatch,
                fmt::format("metrics of step {}: ranks added different names, or published another "
                            "step; rank {} added {}",
                            step.step, group_->rank(), names.empty() ? "nothing" : names),
                {group_->rank(), -1, 0});
}

Result<std::optional<Metrics>> FusedBus::take(bool wait) {
  if (!failure_.ok()) return failure_;
  if (published_.empty()) return std::optional<Metrics>();
  PendingMetrics& oldest = published_.front();
  if (!wait && !oldest.work.done()) return std::optional<Metrics>();
  if (failure_ = finish(oldest); !failure_.ok()) return failure_;

  Metrics metrics;
  metrics.step = oldest.step;
  metrics.sums.reserve(oldest.names.size());
  for (std::size_t i = 0; i < oldest.names.size(); ++i)
    metrics.sums.emplace_back(std::move(oldest.names[i]), oldest.vector[kHashes + i]);
  recycle(std::move(oldest));
  published_.pop_front();
  return std::optional<Metrics>(std::move(metrics));
}

void FusedBus::recycle(PendingMetrics step) {
  if (spare_.size() > kMostUnderWay) return;
  step.names.clear();
  step.vector.resize(kHashes);
  step.work = Work();
  spare_.push_back(std::move(step));
}

}  // namespace

std::optional<double> Metrics::find(std::string_view name) const {
  for (const auto& [key, sum] : sums)
    if (key == name) return sum;
  return std::nullopt;
}

Result<std::unique_ptr<MetricsBus>> MetricsBus::create(Group& group, bool asynchronous) {
  auto own = group.duplicate({"metrics", ReductionOrder::rank, Urgency::urgent});
  if (!own.ok()) return own.status().annotate("the metrics bus");
  return std::unique_ptr<MetricsBus>(new FusedBus(std::move(*own), asynchronous));
}

}  // namespace v1
}  // namespace tutti::train
