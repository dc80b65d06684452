#include "channel_trial.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace pretrain {

using tutti::Buffer;
using tutti::Collective;
using tutti::ReduceOp;
using tutti::Result;
using tutti::Status;

namespace {

constexpr int kQueueRounds = 5;  // and one before, which does not count
constexpr int kPaceRounds = 3;
constexpr double kPaceSeconds = 0.2;  // of compute in one round
constexpr double kSlowest = 0.02;     // a pace below this is a hiccup

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class Trial {
 public:
  explicit Trial(tutti::Group& group) : group_(group) {}

  Status run(Rehearsal& rehearsal) {
    std::size_t largest = rehearsal.control.bytes;
    for (const auto* calls : {&rehearsal.reductions, &rehearsal.gathers})
      for (const PlannedCollective& call : *calls) largest = std::max(largest, call.bytes);
    // A sum that is wider than what is sent lies behind it.
    auto memory = group_.allocate(3 * elements_of(largest) * sizeof(float));
    if (!memory.ok()) return memory.status();
    memory_ = *std::move(memory);
    std::vector<PlannedCollective> control = {rehearsal.control};
    for (auto* calls : {&rehearsal.reductions, &rehearsal.gathers, &control})
      if (Status status = time_queue(*calls); !status.ok()) return status;
    rehearsal.control = control.front();
    auto pace = find_pace(rehearsal.reductions);
    if (!pace.ok()) return pace.status();
    rehearsal.shape.pace = *pace;
    return {};
  }

 private:
  // A multiple of the ranks: every rank has a part.
  std::size_t elements_of(std::size_t bytes) const {
    const auto ranks = static_cast<std::size_t>(group_.size());
    return std::max<std::size_t>((bytes / sizeof(float) + ranks - 1) / ranks, 1) * ranks;
  }

  tutti::Work start(const PlannedCollective& call) {
    const std::size_t count = elements_of(call.bytes);
    const std::size_t each = count / static_cast<std::size_t>(group_.size());
    auto* values = static_cast<float*>(memory_.data);
    const Buffer all = Buffer::of(values, count);
    const Buffer own = Buffer::of(values + each * static_cast<std::size_t>(group_.rank()), each);
    if (call.widens) return start_widening(call, 2 * count);
    if (call.collective == Collective::reduce_scatter)
      return group_.reduce_scatter_async(all, own, ReduceOp::sum);
    if (call.collective == Collective::all_gather) return group_.all_gather_async(own, all);
    return group_.all_reduce_async(all, ReduceOp::sum);
  }

  tutti::Work start_widening(const PlannedCollective& call, std::size_t count) {
    auto* sent = static_cast<std::uint16_t*>(memory_.data);
    const Buffer all{sent, count, tutti::Dtype::bf16};
    const std::size_t each = count / static_cast<std::size_t>(group_.size());
    const bool scatters = call.collective == Collective::reduce_scatter;
    const Buffer sum{sent + count, scatters ? each : count, tutti::Dtype::f32};
    return scatters ? group_.reduce_scatter_async(all, sum, ReduceOp::sum)
                    : group_.all_reduce_async(all, sum, ReduceOp::sum);
  }

  // `ended` gets the time of each end.
  Status run_queue(const std::vector<PlannedCollective>& calls, std::vector<double>& ended) {
    const auto begin = Clock::now();
    std::vector<tutti::Work> works;
    for (const PlannedCollective& call : calls) works.push_back(start(call));
    ended.clear();
    for (tutti::Work& work : works) {
      if (Status status = work.wait(); !status.ok()) return status;
      ended.push_back(since(begin));
    }
    return {};
  }

  // The mean, not the best: a training step meets the same hiccups.
  Status time_queue(std::vector<PlannedCollective>& calls) {
    if (calls.empty()) return {};
    std::vector<double> sums(calls.size(), 0);
    for (int round = 0; round <= kQueueRounds; ++round) {
      if (Status status = group_.barrier(); !status.ok()) return status;
      std::vector<double> ended;
      if (Status status = run_queue(calls, ended); !status.ok()) return status;
      for (std::size_t i = 0; i < sums.size() && round > 0; ++i)
        sums[i] += (ended[i] - (i > 0 ? ended[i - 1] : 0)) / kQueueRounds;
    }
    Status status = group_.all_reduce(Buffer::of(sums), ReduceOp::avg);
    for (std::size_t i = 0; i < sums.size(); ++i) calls[i].alone_s = sums[i];
    return status;
  }

  double multiply(int products) {
    const auto begin = Clock::now();
    for (int i = 0; i < products; ++i) torch::mm(left_, right_);
    return since(begin);
  }

  // So many matrix products take about a round, the same number on every rank.
  Result<int> products_of_a_round() {
    multiply(4);
    double amount = kPaceSeconds / (multiply(16) / 16);
    if (Status status = group_.all_reduce(Buffer::of(&amount, 1), ReduceOp::avg); !status.ok())
      return status;
    return static_cast<int>(std::clamp(amount, 1.0, 1e6));
  }

  // Reductions for about twice as long as the products, so that these end first.
  std::vector<PlannedCollective> long_queue(const std::vector<PlannedCollective>& calls) {
    std::vector<PlannedCollective> queue;
    double length = 0;
    while (length < 2 * kPaceSeconds && queue.size() < 4096) {
      queue.push_back(calls[queue.size() % calls.size()]);
      length += std::max(queue.back().alone_s, 1e-6);
    }
    return queue;
  }

  // Products and queue started together: how long each took, from the common beginning.
  struct Together {
    double products_s = 0;
    double queue_s = 0;
  };
  Result<Together> run_together(const std::vector<PlannedCollective>& queue, int products) {
    // By callback: nobody waits while products are computed.
    auto end = std::make_shared<std::atomic<double>>(0);
    Together both;
    const auto begin = Clock::now();
    std::vector<tutti::Work> works;
    for (const PlannedCollective& call : queue) works.push_back(start(call));
    works.back().on_complete([end, begin](const Status&) { end->store(since(begin)); });
    multiply(products);
    both.products_s = since(begin);
    for (tutti::Work& work : works)
      if (Status status = work.wait(); !status.ok()) return status;
    const double waited = since(begin);
    both.queue_s = end->load() > 0 ? end->load() : waited;
    return both;
  }

  Result<tutti::plan::Pace> find_pace(const std::vector<PlannedCollective>& calls) {
    auto products = products_of_a_round();
    if (!products.ok()) return products.status();
    const auto queue = long_queue(calls);
    double sums[4] = {};  // products alone, queue alone, products and queue together
    for (int round = 0; round < kPaceRounds; ++round) {
      std::vector<double> ended;
      if (Status status = group_.barrier(); !status.ok()) return status;
      sums[0] += multiply(*products);
      if (Status status = group_.barrier(); !status.ok()) return status;
      if (Status status = run_queue(queue, ended); !status.ok()) return status;
      sums[1] += ended.back();
      if (Status status = group_.barrier(); !status.ok()) return status;
      auto both = run_together(queue, *products);
      if (!both.ok()) return both.status();
      sums[2] += both->products_s;
      sums[3] += both->queue_s;
    }
    if (Status status = group_.all_reduce(Buffer::of(sums, 4), ReduceOp::avg); !status.ok())
      return status;
    // Whoever was through last ran alone from then on.
    const double beside = std::min(sums[2], sums[3]);
    const double products_beside = sums[0] - (sums[2] - beside);
    const double queue_beside = sums[1] - (sums[3] - beside);
    return tutti::plan::Pace{std::clamp(products_beside / beside, kSlowest, 1.0),
                             std::clamp(queue_beside / beside, kSlowest, 1.0)};
  }

  tutti::Group& group_;
  tutti::SymmetricMemory memory_;
  torch::Tensor left_ = torch::rand({128, 128}), right_ = torch::rand({128, 128});
};

}  // namespace

Status try_channel(tutti::Group& group, Rehearsal& rehearsal) {
  auto own = group.duplicate({"rehearsal", tutti::ReductionOrder::rank});
  if (!own.ok()) return own.status();
  return Trial(**own).run(rehearsal);
}

}  // namespace pretrain
