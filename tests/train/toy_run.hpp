// train/toy_run.hpp - trains the toy model for a few steps, in one of the modes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/toy_model.hpp"
#include "tutti/group.hpp"

namespace tutti::test {

struct ToyRun {
  train::DataParallelOptions options;
  ToyOptions model;
  int steps = 4;
  int accumulation = 1;  // micro-batches per step and rank
  bool asynchronous_log = false;
  int evaluate_every = 0;
  // When the layer is made.
  std::function<void(train::DataParallel&)> begin{};
  // May change a pass of (step, rank, micro-batch).
  std::function<void(int step, int rank, int micro, ToyModel::Pass&)> change{};
  // May change what a step is told.
  std::function<void(train::StepInput&)> tell{};
  // After each step, on each rank.
  std::function<void(int step, train::DataParallel&, const train::StepReport&)> look{};
};

struct ToyOutcome {
  std::string hash;            // of the weights, at the end
  std::vector<double> losses;  // mean over the tokens of all ranks, by step, from the bus
  std::vector<double> norms;
  std::vector<double> evaluated;
  std::vector<train::StepReport> reports;
};

// Sequence m of rank r in step s is number s · n · accumulation + r · accumulation + m, so that n
// ranks with 1 see what one rank with n sees, in the order of ranks.
Result<ToyOutcome> train_toy(std::shared_ptr<Group> group, const ToyRun& run);

// The five modes, with their flags' names.
struct Mode {
  std::string name;
  train::DataParallelOptions options;
};
std::vector<Mode> five_modes();
// Those in which ranks keep less than ZeRO's first stage does, with every overlap that they have.
std::vector<Mode> zero_modes();
// ZeRO's first stage that reduces in every micro-batch: whose bits they have.
Mode every_micro_batch();

}  // namespace tutti::test
