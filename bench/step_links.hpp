// bench/step_links.hpp - what links and memory give while all ranks of all hosts ask at once: the figures of a
// cluster file (docs/formats/cluster.md) for the hosts that a job runs on.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "bench/protocol.hpp"
#include "tutti/mesh.hpp"
#include "tutti/train.hpp"

namespace tutti::bench {

struct LinkFigures {
  double within_latency_s = 0, within_bandwidth = 0;
  double between_latency_s = 0, between_bandwidth = 0;  // 0: there is one host
  double memory_bandwidth = 0;                          // by the bytes that an update counts
  double reduce_bandwidth = 0;                          // 0: folds cost nothing that shows
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
  static constexpr std::size_t kShort = 256, kLong = 1 << 18;  // elements of the whole
  static constexpr int kRepeats = 25;

  void keep(const Status& status) {
    if (failure_.ok()) failure_ = status;
  }
  // Of the slowest rank, median of many; all ranks begin at once.
  double seconds_of(const std::function<Status()>& call) {
    std::vector<double> times;
    for (int i = 0; i < kRepeats && failure_.ok(); ++i) {
      keep(group_->barrier());
      const double begin = now_us();
      keep(call());
      double seconds = (now_us() - begin) * 1e-6;
      keep(group_->all_reduce(Buffer::of(&seconds, 1), ReduceOp::max));
      times.push_back(seconds);
    }
    return median_of(times);
  }

  // Every host at once, as tensor parallelism does it.
  void measure_within(LinkFigures& figures) {
    const auto ranks = static_cast<std::size_t>(host_->size());
    if (ranks == 1) return;
    auto memory = host_->allocate(2 * kLong * sizeof(float));
    keep(memory.status());
    if (!failure_.ok()) return;
    auto* values = static_cast<float*>(memory->data);
    const auto gathering = [&](std::size_t count) {
      return seconds_of([&] {
        return host_->all_gather(Buffer::of(values, count / ranks),
                                 Buffer::of(values + kLong, count));
      });
    };
    const double brief = gathering(kShort), gather = gathering(kLong);
    const double scatter = seconds_of([&] {
      return host_->reduce_scatter(Buffer::of(values + kLong, kLong),
                                   Buffer::of(values, kLong / ranks), ReduceOp::sum);
    });
    const double moved =
        kLong * sizeof(float) * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    figures.within_latency_s = brief;
    figures.within_bandwidth = moved / std::max(1e-9, gather - brief);
    if (scatter > gather) figures.reduce_bandwidth = moved / (scatter - gather);
  }

  // A message there and back, the first rank of the first host and of the last.
  void measure_between(LinkFigures& figures) {
    const int other = group_->size() - host_->size();
    if (other == 0) return;
    std::vector<float> values(8 * kLong);
    const auto there_and_back = [&](std::size_t count) {
      const Buffer message = Buffer::of(values.data(), count);
      return seconds_of([&]() -> Status {
        const int rank = group_->rank();
        if (rank != 0 && rank != other) return {};
        const int peer = rank == 0 ? other : 0;
        if (rank == 0)
          if (Status status = group_->send(message, peer); !status.ok()) return status;
        if (Status status = group_->recv(message, peer).status(); !status.ok()) return status;
        return rank == 0 ? Status() : group_->send(message, peer);
      });
    };
    const double brief = there_and_back(1), whole = there_and_back(values.size());
    figures.between_latency_s = brief / 2;
    figures.between_bandwidth =
        static_cast<double>(values.size() * sizeof(float)) / ((whole - brief) / 2);
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
