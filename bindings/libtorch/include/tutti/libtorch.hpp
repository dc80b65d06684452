// tutti/libtorch.hpp - any torch::nn::Module as one replica of a data-parallel training.
//
// Wraps a module: its parameters become views of the layer's flat buckets, hooks on their gradient
// accumulators say when a gradient is there. The C++ frontend has no forward hooks, so forward says
// itself when it needs a submodule: `Gate gate(model, *linear_qkv)`, or forward_gated. Parameters
// that no gate ever asked for are waited for before forward: right, only not overlapped. From
// step() until its gate a parameter reads as NaN, and backward names what was read before its gate.
//
// Devices        a module on a CUDA device is trained there (train::DataParallelOptions::device): all of it
//                on one, wrapped and trained under the same current stream. Needs torch 2.11.
// Buffers        load weights and move the module before wrapping it: Module::to and torch::load
//                afterwards replace the views, which is detected and named. The layer zeroes the
//                gradients; zero_grad is neither needed nor harmful between steps.
// Thread-safety  one thread at a time; several ranks may be threads of one process.
// Failure        Status, as everywhere in tutti; nothing of it is thrown but by Gate (GateError),
//                which has no other way out of a forward.
//
//   auto model = tutti::libtorch::DataParallel::create(net, {group}, options);
//   (*model)->begin_micro_batch(true);
//   auto loss = net->forward(x);              // with gates inside
//   (*model)->backward(loss_sum);
//   auto report = (*model)->step({.lr = 1e-3, .tokens = tokens});
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tutti/train.hpp"

namespace tutti::libtorch {

struct Options {
  train::DataParallelOptions layer;
  // The parameter group of a parameter, by name; null: 0 for all.
  std::function<int(const std::string& name, const torch::Tensor& value)> group_of;
  // Which box of which tensor a parameter is, where the model is cut over ranks, by name; null: each is a
  // whole tensor.
  std::function<train::ParameterPlace(const std::string& name, const torch::Tensor& value)>
      place_of;
  // With layer.zero = 3: modules whose parameters are gathered and let go of together, such as a block of
  // layers; of nested ones the outermost. Null, and what is in none: by bucket_bytes.
  std::function<bool(const torch::nn::Module& module)> is_unit;
  // Rank 0's module buffers (running means and the like) reach every rank before each step.
  bool broadcast_buffers = true;
};

class GateError : public std::runtime_error {
 public:
  explicit GateError(Status status);
  const Status& status() const noexcept { return status_; }

 private:
  Status status_;
};

class DataParallel {
 public:
  static Result<std::shared_ptr<DataParallel>> create(std::shared_ptr<torch::nn::Module> module,
                                                      train::Groups groups, Options options);
  ~DataParallel();

  Status begin_micro_batch(bool last);
  // Of a *sum*, not of a mean. Runs autograd to its end.
  Status backward(const torch::Tensor& loss_sum);
  // The same for whoever runs autograd himself, between the last two. check_gates: that forward read nothing
  // of what leads to this before its gate was passed.
  Status check_gates(const torch::Tensor& output);
  Status begin_backward();
  Status end_backward();
  // With layer.pipelined, for a stage of a pipeline: backward of what a forward gave, by its gradient.
  // `last`: gradients that it brings are complete with it.
  Status backward(const torch::Tensor& output, const torch::Tensor& gradient, bool last);
  // The same for gradients that were put off, such as those of a WeightQueue.
  Status add_gradients(const std::function<Status()>& compute, bool last);
  // As train::DataParallel::end_forward.
  Status end_forward();
  Result<train::StepReport> step(const train::StepInput& input);
  // Collective: the step is begun again from its first micro-batch.
  Status discard_gradients();

  // As train::DataParallel::recover: the module's tensors follow.
  Result<std::int64_t> recover(train::Groups survivors);
  // As train::DataParallel::join: a module that was wrapped alone becomes like the others'.
  Result<std::int64_t> join(train::Groups others);

  // The gate for a submodule's own parameters, its children's included, and for one parameter.
  Status need(const torch::nn::Module& submodule);
  Status need(const torch::Tensor& parameter);
  // With layer.zero = 3, when forward or backward has come past what need was asked for: see WeightScope.
  void done(const torch::nn::Module& submodule);
  Status parameters_ready();

  train::DataParallel& layer() const;

 private:
  friend class Gate;
  class State;
  std::string closed_name(const torch::Tensor& parameter) const;  // empty: it may be read
  explicit DataParallel(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// With layer.zero = 3: the part of forward that reads a submodule's parameters, and of backward that does so again.
// They are whole in there, and NaN outside. A gradient that comes by where forward has left the scope enters it in
// backward, one that comes by where forward has entered it leaves it; where the input has no gradient that is
// when backward ends. Otherwise, and when `model` is null, it does nothing. The model and the submodule outlive
// the graph.
//
//   WeightScope scope(model, *block);
//   return scope.leave(block->forward(scope.enter(x)));
class WeightScope {
 public:
  WeightScope(DataParallel* model, const torch::nn::Module& submodule);
  ~WeightScope();
  WeightScope(const WeightScope&) = delete;
  WeightScope& operator=(const WeightScope&) = delete;

  torch::Tensor enter(const torch::Tensor& x) const;
  torch::Tensor leave(const torch::Tensor& y) const;

 private:
  DataParallel* model_ = nullptr;
  const torch::nn::Module* submodule_ = nullptr;
};

// In forward, before a submodule's parameters are read. Does nothing when `model` is null, so that
// the same module runs without the layer. With layer.zero = 3 it only makes sure that a WeightScope has
// them.
class Gate {
 public:
  Gate(DataParallel* model, const torch::nn::Module& submodule);
  Gate(DataParallel* model, const torch::Tensor& parameter);

 private:
  static void check_scope(const DataParallel& model, const std::vector<torch::Tensor>& parameters);
};

// A Sequential whose children are gated one by one.
torch::Tensor forward_gated(DataParallel* model, torch::nn::Sequential& layers, torch::Tensor x);

}  // namespace tutti::libtorch
