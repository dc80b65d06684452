// train/toy_model.hpp - a small language model in plain loops, for tests of the training layer.
//
// Embedding (tied to the head), layers x = tanh(W x + b) + x, a scale, softmax over the tokens. Its
// gradients are written out by hand, in f32, in one fixed order: bits depend on the weights and the
// sequence alone. There are parameters that are never used, frozen, empty or used on demand.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/group.hpp"
#include "tutti/train.hpp"

namespace tutti::test {

struct ToyOptions {
  Dtype dtype = Dtype::f32;
  int layers = 3;
  int width = 24;
  bool shuffled_definition = false;  // layers are defined in another order than they run
  unsigned seed = 1;
  std::string prefix{};  // of the names that the layer gets to know
};

class ToyModel {
 public:
  explicit ToyModel(const ToyOptions& options);

  // To be handed to DataParallel::create; memory is the model's.
  std::vector<train::Parameter> parameters() const;
  std::size_t index_of(const std::string& name) const;
  void attach(train::DataParallel& layer) { layer_ = &layer; }

  static constexpr int kTokens = 29;
  using Sequence = std::vector<int>;

  // Forward and backward of one sequence through the layer's gates and hooks; the loss *sum*.
  struct Pass {
    bool with_extra = true;  // uses the parameter "extra" too
    float planted = 0;       // is added to one gradient of layer 1
    bool last = true;
    // 2: half of each gradient comes in its turn, the other half when all first halves are in, as
    // where forward is recomputed in segments.
    int parts = 1;
    std::string told_again{};  // a parameter whose gradient is told once more at the end
    std::string ungated{};     // one that forward reads without its gate
    // Is told the name of each gradient that the layer was just given.
    std::function<void(const std::string&)> after_gradient{};
  };
  Result<double> run(const Sequence& sequence, const Pass& pass);
  // Forward alone, behind parameters_ready().
  double evaluate(const Sequence& sequence) const;

 private:
  struct Tensor {
    train::Parameter parameter;
    std::vector<float> f32;
    std::vector<std::uint16_t> half;
  };
  struct Trace;  // of a forward
  void define(const std::string& name, std::vector<std::int64_t> shape, float spread);
  std::vector<float> read(const std::string& name) const;
  // Its values, between need and done.
  Result<std::vector<float>> use(const std::string& name, const Pass& pass) const;
  Status use(const std::string& name, const Pass& pass, std::vector<float>& values) const;
  using Gradients = std::vector<std::pair<std::string, std::vector<float>>>;
  void add_gradient(const std::string& name, const std::vector<float>& gradient) const;
  // Adds a part of it and leaves the rest for later.
  void add_part(const std::string& name, std::vector<float> gradient, const Pass& pass,
                Gradients& later) const;
  Status forward(const Sequence& sequence, const Pass& pass, Trace& trace) const;
  Status backward(const Sequence& sequence, const Pass& pass, Trace& trace) const;

  ToyOptions options_;
  std::vector<std::unique_ptr<Tensor>> tensors_;
  train::DataParallel* layer_ = nullptr;
};

// Sequence number `index` of the data, the same for everybody.
ToyModel::Sequence toy_sequence(std::int64_t index);

}  // namespace tutti::test
