// train_torch/adapter_support.hpp - ranks as threads, small modules, and torch's own optimizer as
// the judge of what they must become.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tutti/libtorch.hpp"

namespace adapter_test {

using tutti::libtorch::DataParallel;
using tutti::libtorch::Gate;
using tutti::libtorch::Options;
using tutti::libtorch::WeightScope;

inline void on_ranks(int ranks, const std::function<void(std::shared_ptr<tutti::Group>)>& body) {
  auto store = tutti::make_memory_store();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      tutti::GroupOptions options;
      options.rank = rank;
      options.size = ranks;
      auto group = tutti::Group::create(store, options);
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      body(*group);
    });
  }
  for (auto& thread : threads) thread.join();
}

// Layers by name, 4 wide, with the same weights on every rank; which of them forward uses is told.
struct Net : torch::nn::Module {
  explicit Net(const std::vector<std::string>& names) {
    torch::NoGradGuard no_grad;
    for (const std::string& name : names) {
      auto layer = register_module(name, torch::nn::Linear(4, 4));
      layer->weight.copy_(torch::arange(16.0).view({4, 4}) / 40 - 0.1 * names.size());
      layer->bias.fill_(0.01);
      layers.emplace(name, layer);
    }
  }
  torch::Tensor forward(const std::vector<std::string>& used, DataParallel* gates) {
    auto x = torch::ones({2, 4});
    for (const std::string& name : used) {
      const WeightScope scope(gates, *layers.at(name));
      Gate gate(gates, *layers.at(name));
      x = scope.leave(torch::tanh(layers.at(name)->forward(scope.enter(x))));
    }
    return x.sum();
  }
  std::map<std::string, torch::nn::Linear> layers;
};

using Uses = std::vector<std::vector<std::string>>;  // layers that each step uses

constexpr double kLr = 0.01;

// One step of one micro-batch; fails the test unless it went well.
inline tutti::train::StepReport step(DataParallel& model, const torch::Tensor& loss) {
  EXPECT_TRUE(model.backward(loss).ok());
  auto report = model.step({.lr = kLr, .tokens = 1});
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return report.ok() ? *report : tutti::train::StepReport{};
}

inline void train(Net& net, DataParallel& model, const Uses& uses) {
  for (const auto& used : uses) {
    auto status = model.begin_micro_batch(true);
    ASSERT_TRUE(status.ok()) << status.to_string();
    step(model, net.forward(used, &model));
  }
  ASSERT_TRUE(model.parameters_ready().ok());
}

// The same with torch::optim::AdamW: gradients of all `parts` are added and divided by their number.
inline void train_with_torch(Net& net, const std::vector<Uses>& parts) {
  torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(kLr).weight_decay(0));
  for (std::size_t i = 0; i < parts[0].size(); ++i) {
    for (auto& parameter : net.parameters()) parameter.mutable_grad() = torch::Tensor();
    auto loss = torch::zeros({});
    for (const Uses& uses : parts) loss = loss + net.forward(uses[i], nullptr);
    (loss / static_cast<double>(parts.size())).backward();
    optimizer.step();
  }
}

inline void expect_same(Net& got, Net& wanted) {
  auto values = wanted.named_parameters();
  for (const auto& item : got.named_parameters()) {
    EXPECT_TRUE(torch::allclose(item.value(), values[item.key()], 1e-6, 1e-7)) << item.key();
  }
}

inline std::shared_ptr<DataParallel> wrap(std::shared_ptr<torch::nn::Module> net,
                                          std::shared_ptr<tutti::Group> group,
                                          Options options = {}) {
  auto model = DataParallel::create(std::move(net), {group, group}, std::move(options));
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return model.ok() ? *model : nullptr;
}

inline Options all_overlaps() {
  Options options;
  options.layer.use_distributed_optimizer = true;
  options.layer.overlap_grad_reduce = true;
  options.layer.overlap_param_gather = true;
  return options;
}

// With zero 3 layers of a Net are units.
inline Options zero(int stage) {
  Options options;
  options.is_unit = [](const torch::nn::Module& module) {
    return dynamic_cast<const torch::nn::LinearImpl*>(&module) != nullptr;
  };
  options.layer.zero = stage;
  options.layer.overlap_grad_reduce = true;
  return options;
}

}  // namespace adapter_test
