// A model of one's own, trained by pretrain_gpt's loop: an autoencoder of waves, with all that the flags offer - ZeRO,
// overlap, learning rates, validation, checkpoints that go on on another number of ranks.
//
//   tutti run -n 2 build/bin/examples/own_model --train-iters 300 --zero-stage 1 --overlap-grad-reduce --lr 1e-2
//   tutti run -n 2 build/bin/examples/own_model --help
#include <cmath>

#include "tutti/libtorch/trainer.hpp"

using tutti::libtorch::DataParallel;
using tutti::libtorch::Gate;
using tutti::libtorch::LossSum;
using tutti::libtorch::Samples;

constexpr int kPoints = 32;  // of a wave

struct Autoencoder : torch::nn::Module {
  torch::nn::Linear inner = register_module("inner", torch::nn::Linear(kPoints, 24));
  torch::nn::Linear code = register_module("code", torch::nn::Linear(24, 3));
  torch::nn::Linear outer = register_module("outer", torch::nn::Linear(3, 24));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(24, kPoints));

  torch::Tensor forward(const torch::Tensor& waves, DataParallel* gates) {
    const Gate first(gates, *inner);
    auto x = torch::tanh(inner(waves));
    const Gate second(gates, *code);
    x = code(x);
    const Gate third(gates, *outer);
    x = torch::tanh(outer(x));
    const Gate fourth(gates, *out);
    return out(x);
  }
};

// Sample i is a wave whose length and phase follow from i: no rank needs to know who has which.
torch::Tensor wave(std::uint64_t index, bool training) {
  const double number = static_cast<double>(index) + (training ? 0 : 0.5);
  const double length = 1 + std::fmod(number * 0.7548777, 1.0);
  const double phase = std::fmod(number * 0.5698403, 1.0);
  return torch::sin(6.2831853 * (torch::arange(kPoints) * (length / kPoints) + phase));
}

class Waves : public tutti::libtorch::TrainingTask {
 public:
  std::shared_ptr<torch::nn::Module> make_model(std::uint64_t seed) override {
    torch::manual_seed(seed);
    return model_ = std::make_shared<Autoencoder>();
  }

  LossSum loss(const Samples& samples, DataParallel* gates) override {
    std::vector<torch::Tensor> rows;
    for (int i = 0; i < samples.count; ++i)
      rows.push_back(wave(samples.first + static_cast<std::uint64_t>(i), samples.training));
    const auto waves = torch::stack(rows);
    const auto wrong = model_->forward(waves, gates) - waves;
    return {wrong.square().mean(1).sum(), samples.count};  // a sum over samples, not their mean
  }

 private:
  std::shared_ptr<Autoencoder> model_;
};

int main(int argc, char** argv) {
  Waves waves;
  return tutti::libtorch::train(argc, argv, waves);
}
