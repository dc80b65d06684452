// train/training.hpp - the toy model in training, on any number of ranks, in any mode.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "train/toy_model.hpp"
#include "train/toy_run.hpp"

namespace tutti::test {

inline constexpr int kSequences = 24;  // of a step, shared by the ranks: 1, 2, 3, 4 and 8 divide it

// All modes: five_modes, and behind them zero_modes.
inline std::vector<Mode> all_modes() {
  std::vector<Mode> modes = five_modes();
  for (const Mode& mode : zero_modes()) modes.push_back(mode);
  return modes;
}
inline const int kModes = static_cast<int>(all_modes().size());

struct Plan {
  int ranks = 1;
  int mode = 0;  // of all_modes
  Dtype dtype = Dtype::f32;
  train::Optimizer optimizer = train::AdamW{};
  unsigned seed = 1;
  std::vector<std::string> order_hint{};
  bool buddy = false;
  std::function<void(train::DataParallelOptions&)> place{};  // says where; null: on the CPU
};

class Training {
 public:
  Training(std::shared_ptr<Group> group, const Plan& plan)
      : group_(std::move(group)), model_({.dtype = plan.dtype, .seed = plan.seed}) {
    train::DataParallelOptions options = all_modes()[static_cast<std::size_t>(plan.mode)].options;
    options.groups = {{.weight_decay = 0.0}, {.weight_decay = 0.1}};
    options.optimizer = plan.optimizer;
    options.bucket_bytes = 2000;
    options.clip_grad = 1;
    options.order_hint = plan.order_hint;
    options.buddy = plan.buddy;
    if (plan.place) plan.place(options);
    auto layer = train::DataParallel::create({group_, group_}, model_.parameters(), options);
    EXPECT_TRUE(layer.ok()) << layer.status().to_string();
    layer_ = *std::move(layer);
    model_.attach(*layer_);
  }

  // Steps [from, to); the mean losses.
  std::vector<double> advance(int from, int to) {
    std::vector<double> losses;
    for (int step = from; step < to; ++step) {
      auto sums = compute(step);
      const Status status = update();
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_TRUE(group_->all_reduce(Buffer::of(sums.data(), 2), ReduceOp::sum).ok());
      losses.push_back(sums[0] / sums[1]);
    }
    return losses;
  }

  // A step, in two parts: this rank's loss sum and tokens; and the rest of it.
  std::array<double, 2> compute(int step) {
    const int accumulation = kSequences / group_->size();
    std::array<double, 2> sums = {0, 0};
    for (int micro = 0; micro < accumulation; ++micro) {
      ToyModel::Pass pass;
      pass.last = micro + 1 == accumulation;
      pass.with_extra = step % 2 == 0;  // so that step counts differ
      const auto sequence = toy_sequence(step * kSequences + group_->rank() * accumulation + micro);
      const auto loss = model_.run(sequence, pass);
      if (!loss.ok()) break;
      sums[0] += *loss;
      sums[1] += static_cast<double>(sequence.size() - 1);
    }
    tokens_ = static_cast<std::int64_t>(sums[1]);
    return sums;
  }
  Status update() { return layer_->step({.lr = 0.02, .tokens = tokens_}).status(); }

  // Goes on in another group.
  Result<std::int64_t> recover(std::shared_ptr<Group> survivors) {
    group_ = std::move(survivors);
    return layer_->recover({group_, nullptr});
  }
  // Was alone so far.
  Result<std::int64_t> join(std::shared_ptr<Group> others) {
    group_ = std::move(others);
    return layer_->join({group_, nullptr});
  }

  train::DataParallel& layer() { return *layer_; }
  std::string hash() {
    const auto hash = layer_->weight_hash();
    EXPECT_TRUE(hash.ok()) << hash.status().to_string();
    return hash.ok() ? *hash : std::string();
  }

 private:
  std::shared_ptr<Group> group_;
  ToyModel model_;
  std::unique_ptr<train::DataParallel> layer_;
  std::int64_t tokens_ = 0;
};

}  // namespace tutti::test
