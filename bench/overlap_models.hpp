// bench/overlap_models.hpp - the two models of the overlap bench, alike in bench/overlap_ddp.py.
//
//   timed   each layer is one parameter, and an autograd Function that sleeps a set time in forward
//           and in backward: it stands for an accelerator. Hooks, buckets and wire are real.
//   mlp     x + W2 gelu(W1 norm(x)), as in a transformer: real matrix products.
#pragma once

#include <time.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "tutti/libtorch.hpp"

namespace tutti::bench {

using libtorch::DataParallel;
using libtorch::Gate;
using libtorch::WeightScope;

inline void sleep_s(double time_s) {
  timespec left{
      static_cast<time_t>(time_s),
      static_cast<long>((time_s - static_cast<double>(static_cast<time_t>(time_s))) * 1e9)};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

// forward_s, backward_s: of this layer. The gradient is there when the time is over.
class Sleep : public torch::autograd::Function<Sleep> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& /*weight*/, const torch::Tensor& gradient,
                               double forward_s, double backward_s) {
    context->saved_data["gradient"] = gradient;
    context->saved_data["backward_s"] = backward_s;
    sleep_s(forward_s);
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grad) {
    sleep_s(context->saved_data["backward_s"].toDouble());
    return {grad[0], context->saved_data["gradient"].toTensor(), {}, {}, {}};
  }
};

// A model whose forward opens the gates itself.
class Net : public torch::nn::Module {
 public:
  // `gates` may be null.
  virtual torch::Tensor forward(DataParallel* gates) = 0;
};

struct TimedShape {
  int layers = 16;
  std::int64_t layer_bytes = 2 << 20;
  double forward_s = 0;  // of all layers
  double backward_s = 0;
};

// A layer of its own, so that it can be gathered as a unit.
class TimedLayer : public torch::nn::Module {
 public:
  explicit TimedLayer(std::int64_t count)
      : weight(register_parameter("weight", torch::ones({count}))) {}
  torch::Tensor weight;
};

class TimedNet : public Net {
 public:
  explicit TimedNet(const TimedShape& shape) : shape_(shape) {
    const std::int64_t count = shape.layer_bytes / 4;
    gradient_ = torch::full({count}, 1e-3F);
    for (int i = 0; i < shape.layers; ++i)
      layers_.push_back(
          register_module("layer" + std::to_string(i), std::make_shared<TimedLayer>(count)));
  }
  torch::Tensor forward(DataParallel* gates) override {
    torch::Tensor x = torch::ones({1});
    x.requires_grad_(true);
    for (const auto& layer : layers_) {
      const WeightScope scope(gates, *layer);
      Gate gate(gates, *layer);
      x = scope.leave(Sleep::apply(scope.enter(x), layer->weight, gradient_,
                                   shape_.forward_s / shape_.layers,
                                   shape_.backward_s / shape_.layers));
    }
    return x.sum();
  }

 private:
  TimedShape shape_;
  torch::Tensor gradient_;
  std::vector<std::shared_ptr<TimedLayer>> layers_;
};

class MlpBlock : public torch::nn::Module {
 public:
  explicit MlpBlock(std::int64_t width)
      : norm(register_module(
            "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions(std::vector{width})))),
        up(register_module("up", torch::nn::Linear(width, 4 * width))),
        down(register_module("down", torch::nn::Linear(4 * width, width))) {}
  torch::Tensor forward(DataParallel* gates, const torch::Tensor& x) {
    const WeightScope scope(gates, *this);
    const torch::Tensor in = scope.enter(x);
    Gate norm_gate(gates, *norm);
    torch::Tensor y = norm(in);
    Gate up_gate(gates, *up);
    y = torch::gelu(up(y));
    Gate down_gate(gates, *down);
    return scope.leave(in + down(y));
  }

  torch::nn::LayerNorm norm;
  torch::nn::Linear up, down;
};

struct MlpShape {
  int layers = 6;
  std::int64_t width = 256;
  std::int64_t tokens = 512;
};

class MlpNet : public Net {
 public:
  explicit MlpNet(const MlpShape& shape) : x_(torch::randn({shape.tokens, shape.width})) {
    for (int i = 0; i < shape.layers; ++i)
      blocks_.push_back(
          register_module("block" + std::to_string(i), std::make_shared<MlpBlock>(shape.width)));
  }
  torch::Tensor forward(DataParallel* gates) override {
    torch::Tensor x = x_;
    for (const auto& block : blocks_) x = block->forward(gates, x);
    return x.sum();
  }

 private:
  torch::Tensor x_;
  std::vector<std::shared_ptr<MlpBlock>> blocks_;
};

}  // namespace tutti::bench
