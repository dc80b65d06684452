// tutti/libtorch/trainer.hpp - a program that trains a model of your own, or with a loss of your own, by pretrain_gpt's loop: all
// modes of data parallelism, ZeRO, overlap, learning rates, loss guard, checkpoints that go on on any number of ranks,
// lost ranks, validation, logs. Its flags are those of pretrain_gpt that have to do with that (--help).
//
//   class Digits : public tutti::libtorch::TrainingTask { … };
//   int main(int argc, char** argv) {
//     Digits digits;
//     return tutti::libtorch::train(argc, argv, digits);       // tutti run -n 4 ./digits --zero-stage 1 --overlap-grad-reduce
//   }
//
// Link tutti::trainer. examples/own_model.cpp and examples/own_loss.cpp are a page each; docs/tutorials/your_own_model.md.
//
// Thread-safety  what is yours is called in the thread that called, by one rank a process.
// Failure        exit codes as pretrain_gpt's: 0; 2 what was given is at fault; 1 the run failed. What your functions throw
//                as c10::Error ends the run with its words.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "tutti/libtorch.hpp"

namespace tutti::libtorch {

// Samples [first, first + count) of the training, or of the validation: numbers that go up from 0 as the run goes on, each of
// them computed by one rank. After a restart they go on where the checkpoint was, on any number of ranks.
struct Samples {
  std::uint64_t first = 0;
  int count = 0;  // --micro-batch-size
  bool training = true;
};

// What a micro-batch comes to: the step follows the gradient of all sums over all counts.
struct LossSum {
  torch::Tensor sum;       // of the losses of `count` things
  std::int64_t count = 0;  // samples, tokens, pixels; 0: nothing of it counts
};

class TrainingTask {
 public:
  virtual ~TrainingTask() = default;
  // The model with its first values, which are rank 0's everywhere. Called once more where training starts over.
  virtual std::shared_ptr<torch::nn::Module> make_model(std::uint64_t seed) = 0;
  // Forward of the model that was made last. What is random in it should follow from the samples' numbers alone: then a step has
  // the same bits wherever it is computed. `gates`: for Gate and WeightScope, so that weights may arrive beside
  // forward; null: there is nothing to wait for. Without any gates the model is right, only less is hidden.
  virtual LossSum loss(const Samples& samples, DataParallel* gates) = 0;
  // Of a parameter: whether --weight-decay applies. Left as it is: not to biases and norms.
  virtual bool decays(const std::string& name, const torch::Tensor& value) const;
};

// The whole program.
int train(int argc, const char* const* argv, TrainingTask& task);

// The loss of each token, [b, s], from the scores of all tokens that might come, [b, s, v], in f32 or f64, and the one that came,
// [b, s]. Masks and means are applied to what it returns.
using TokenLoss =
    std::function<torch::Tensor(const torch::Tensor& scores, const torch::Tensor& labels)>;

// pretrain_gpt, with all its flags but --tensor-model-parallel-size, which cuts the scores. Empty: with cross entropy.
int pretrain_gpt(int argc, const char* const* argv, const TokenLoss& loss = {});

}  // namespace tutti::libtorch
