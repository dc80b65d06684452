// A torch module on the training layer: each rank learns from its own points whether they lie within a
// circle. A gate before each layer lets its weights arrive beside the layer before it.
//
//   tutti run -n 2 build/bin/examples/torch_circle
#include "example.hpp"
#include "tutti/libtorch.hpp"

using namespace example;
using tutti::libtorch::DataParallel;
using tutti::libtorch::Gate;

constexpr int kPoints = 64;  // per rank and step

struct Net : torch::nn::Module {
  torch::nn::Linear inner = register_module("inner", torch::nn::Linear(2, 16));
  torch::nn::Linear outer = register_module("outer", torch::nn::Linear(16, 1));

  torch::Tensor forward(const torch::Tensor& points, DataParallel* model) {
    const Gate first(model, *inner);
    const torch::Tensor hidden = torch::tanh(inner(points));
    const Gate second(model, *outer);
    return outer(hidden).squeeze(1);
  }
};

int main() {
  auto group = join(2, "torch_circle");
  at::set_num_threads(1);
  torch::manual_seed(1);  // the same weights everywhere, to begin with
  auto net = std::make_shared<Net>();
  tutti::libtorch::Options options;
  options.layer.overlap_grad_reduce = options.layer.use_distributed_optimizer = true;
  options.layer.overlap_param_gather = true;
  auto model = value_of(DataParallel::create(net, {group, nullptr}, options));

  torch::manual_seed(100 + static_cast<std::uint64_t>(group->rank()));  // points of one's own
  for (int step = 1; step <= 300; ++step) {
    check(model->begin_micro_batch(true));
    const torch::Tensor points = torch::rand({kPoints, 2}) * 2 - 1;
    const torch::Tensor inside = (points.square().sum(1) < 0.5).to(torch::kFloat);
    const torch::Tensor guess = net->forward(points, model.get());
    // The sum, not the mean: the layer divides once, by what all ranks have counted.
    const torch::Tensor loss =
        torch::binary_cross_entropy_with_logits(guess, inside, {}, {}, at::Reduction::Sum);
    check(model->backward(loss));
    value_of(model->step({.lr = 0.03, .tokens = kPoints}));
  }
  check(model->parameters_ready());
  check(model->layer().check_weights());  // the same bits on every rank

  torch::NoGradGuard no_grad;
  torch::manual_seed(7);
  const torch::Tensor points = torch::rand({1000, 2}) * 2 - 1;
  const torch::Tensor right = (net->forward(points, nullptr) > 0) == (points.square().sum(1) < 0.5);
  say("rank %d: %s nine of ten points are told right", group->rank(),
      right.sum().item<int>() > 900 ? "more than" : "not even");
}
