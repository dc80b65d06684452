// train/cut_model.hpp - a model of which every rank has a part, in whatever way it is cut: for tests of
// norms, hashes and checkpoints.
//
// It computes nothing. Weights are a function of tensor and element, and gradients of tensor, element, step
// and data rank; each rank takes those of its boxes. So layouts with as many data ranks have equal gradients
// to the bit, and must end with equal weights.
//
//   table      [7, 3]    by rows over tp, unevenly; on the first and the last stage, each with a part of its
//                        gradient
//   l.qkv      [3h, h]   by heads over tp: a box of [3, heads, d, h] only
//   l.proj     [h, h]    by columns over tp
//   l.norm     [h]       on every rank of tp, each with a part of its gradient
//   l.bias     [h]       on every rank of tp, with all of it
//   l.still    [5]       frozen; on every rank of tp
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/group.hpp"
#include "tutti/train.hpp"

namespace tutti::test {

// Ranks: tp fastest, then dp, then pp.
struct CutLayout {
  int dp = 1, tp = 1, pp = 1;
  int ranks() const { return dp * tp * pp; }
};
std::string to_string(const CutLayout& layout);

struct CutOptions {
  CutLayout layout;
  Dtype dtype = Dtype::f32;  // of weights, but for the norms'
  int layers = 4;
  train::DataParallelOptions train{};
  // Weights of another start; -1: zeros.
  int version = 0;
  // Changes what this rank says of a parameter.
  std::function<void(train::Parameter&)> change{};
};

class CutModel {
 public:
  // Collective on `world`, which has the layout's ranks.
  CutModel(std::shared_ptr<Group> world, const CutOptions& options);

  const Status& status() const { return status_; }  // of creating the layer
  train::DataParallel& layer() { return *layer_; }
  const train::Groups& groups() const { return groups_; }

  struct Pass {
    int micro_batches = 1;
    std::string skipped{};     // a tensor that this rank does not use
    std::string poisoned{};    // one whose gradient is NaN here
    std::int64_t tokens = 64;  // of this data rank
  };
  // The whole state, as far as this rank keeps it, in lines: tensor, kind, element of the whole tensor, bits.
  std::string state();
  // One step whose gradients are those of `number`.
  Result<train::StepReport> step(int number, const Pass& pass);
  Result<train::StepReport> step(int number) { return step(number, Pass()); }

 private:
  struct Tensor {
    train::Parameter parameter;
    std::vector<std::size_t> elements;  // of the whole tensor, by element here
    std::vector<std::byte> values;
    double share = 1;  // of the gradient, that is this rank's
  };
  void define(int stage);
  void add(std::string name, std::vector<std::int64_t> shape, train::TensorBox box, Dtype dtype);
  void add_gradient(std::size_t index, int number, const Pass& pass);

  CutOptions options_;
  int d_ = 0, t_ = 0, p_ = 0;  // this rank's place
  train::Groups groups_;
  std::vector<Tensor> tensors_;
  std::unique_ptr<train::DataParallel> layer_;
  Status status_;
};

}  // namespace tutti::test
