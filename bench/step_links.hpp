// bench/step_links.hpp - what links and memory give while all ranks of all hosts ask at once: the figures of a
// cluster file (docs/formats/cluster.md) for the hosts that a job runs on.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "bench/protocol.hpp"
#include "tutti/group.hpp"
#include "tutti/train.hpp"

namespace tutti::bench {

struct LinkFigures {
  double within_latency_s = 0, within_bandwidth = 0;
  double between_latency_s = 0, host_bandwidth = 0;  // 0: there is one host
  double memory_bandwidth = 0;                       // by the bytes that an update counts
};

// Collective. Ranks of a host are neighbours, as many on each.
class LinkMeter {
 public:
  LinkMeter(std::shared_ptr<Group> group, std::shared_ptr<Group> host)
      : group_(std::move(group)), host_(std::move(host)) {}

  Result<LinkFigures> measure() {
    LinkFigures figures;
    measure_within(figures);
    measure_between(figures);
    measure_update(figures);
    if (!failure_.ok()) return failure_;
    return figures;
  }

 private:
  static constexpr std::size_t kLong = 1 << 18;  // elements of the whole
  static constexpr int kRepeats = 9, kRow = 5;

  void keep(const Status& status) {
    if (failure_.ok()) failure_ = status;
  }
  // Of the slowest rank, median of many. Some calls follow each other: who leaves the barrier late is not counted.
  double seconds_of(const std::function<Status()>& call) {
    std::vector<double> times;
    for (int i = 0; i < kRepeats && failure_.ok(); ++i) {
      keep(group_->barrier());
      const double begin = now_us();
      for (int call_of_row = 0; call_of_row < kRow && failure_.ok(); ++call_of_row) keep(call());
      double seconds = (now_us() - begin) * 1e-6 / kRow;
      keep(group_->all_reduce(Buffer::of(&seconds, 1), ReduceOp::max));
      times.push_back(seconds);
    }
    return median_of(times);
  }

  // A gather's time alone, and what each byte adds: all groups at once.
  struct GatherTimes {
    double brief_s = 0, long_s = 0, moved_bytes = 0;
    double bandwidth() const { return moved_bytes / std::max(1e-9, long_s - brief_s); }
  };
  GatherTimes gathering(Group& group, std::size_t elements) {
    const auto ranks = static_cast<std::size_t>(group.size());
    auto memory = group.allocate(2 * elements * sizeof(float));
    keep(memory.status());
    if (!failure_.ok()) return {};
    auto* values = static_cast<float*>(memory->data);
    const auto gather = [&](std::size_t count) {
      return seconds_of([&] {
        return group.all_gather(Buffer::of(values, count / ranks),
                                Buffer::of(values + elements, count));
      });
    };
    const double brief_s = gather(ranks), long_s = gather(elements);
    return {brief_s, long_s, static_cast<double>((elements - elements / ranks) * sizeof(float))};
  }

  // Every host at once, as tensor parallelism does it.
  void measure_within(LinkFigures& figures) {
    if (host_->size() == 1) return;
    const GatherTimes times = gathering(*host_, kLong);
    figures.within_latency_s = times.brief_s;
    figures.within_bandwidth = times.bandwidth();
  }

  // Every rank and its like on the next host, both ways at once: what a host sends and receives under such load.
  void measure_between(LinkFigures& figures) {
    if (host_->size() == group_->size()) return;
    auto pair = group_->split(host_->rank(), 0);
    keep(pair.status());
    if (!failure_.ok()) return;
    const GatherTimes times = gathering(**pair, 2 * kLong);
    figures.between_latency_s = times.brief_s;
    figures.host_bandwidth = times.bandwidth() * host_->size();
  }

  // AdamW on f32, every rank its own weights: reads a gradient and 8 bytes of state, writes state and weight.
  void measure_update(LinkFigures& figures) {
    constexpr double kUpdateBytes = 24;
    auto alone = group_->split(group_->rank(), 0);
    keep(alone.status());
    if (!failure_.ok()) return;
    std::vector<float> values(16 * kLong);  // more than a cache holds
    train::Parameter weights;
    weights.name = "weights";
    weights.shape = {static_cast<std::int64_t>(values.size())};
    weights.value = Buffer::of(values);
    auto model = train::DataParallel::create({*alone, nullptr}, {weights}, {});
    keep(model.status());
    std::vector<double> times;
    for (int i = 0; i < 8 && failure_.ok(); ++i) {
      keep((*model)->begin_micro_batch(true));
      keep((*model)->need(0));
      (*model)->begin_backward();
      (*model)->ready(0);
      keep((*model)->end_backward());
      keep(group_->barrier());
      keep((*model)->step({.lr = 1e-6, .tokens = 1}).status());
      times.push_back(static_cast<double>((*model)->take_times().update) * 1e-9);
    }
    double seconds = median_of(times);
    keep(group_->all_reduce(Buffer::of(&seconds, 1), ReduceOp::avg));
    figures.memory_bandwidth =
        static_cast<double>(values.size()) * kUpdateBytes / std::max(1e-9, seconds);
  }

  std::shared_ptr<Group> group_, host_;
  Status failure_;
};

}  // namespace tutti::bench
