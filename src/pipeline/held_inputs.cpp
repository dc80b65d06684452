#include "pipeline/held_inputs.hpp"

#include <algorithm>

#include "pipeline/neighbours.hpp"

namespace tutti::pipeline {
namespace {

class Tally {
 public:
  explicit Tally(const PipelineProgram& program)
      : program_(program),
        now_(static_cast<std::size_t>(program.shape.virtual_stages)),
        most_(now_.size()) {}

  std::vector<HeldInputs> count() {
    for (const PipelineOp& op : program_.ops) take(op);
    return std::move(most_);
  }

 private:
  void take(const PipelineOp& op) {
    const int stage = op.virtual_stage;
    const PipelineShape& shape = program_.shape;
    switch (op.kind) {
      case PipelineOpKind::recv_activation: return hold(stage, &HeldInputs::activations);
      case PipelineOpKind::recv_gradient: return hold(stage, &HeldInputs::gradients);
      case PipelineOpKind::forward:
        if (rank_after(shape, program_.rank, stage) == program_.rank)
          hold(stage + 1, &HeldInputs::activations);
        if (program_.kind == PipelineKind::forward) drop(stage);
        return;
      case PipelineOpKind::backward:
      case PipelineOpKind::backward_input:
        if (rank_before(shape, program_.rank, stage) == program_.rank)
          hold(stage - 1, &HeldInputs::gradients);
        if (op.kind == PipelineOpKind::backward) drop(stage);
        return;
      case PipelineOpKind::backward_weight: return drop(stage);
      case PipelineOpKind::send_activation:
      case PipelineOpKind::send_gradient: return;
    }
  }

  void hold(int stage, int HeldInputs::*what) {
    const auto at = static_cast<std::size_t>(stage);
    most_[at].*what = std::max(most_[at].*what, ++(now_[at].*what));
  }
  void drop(int stage) {
    HeldInputs& now = now_[static_cast<std::size_t>(stage)];
    now.activations = std::max(0, now.activations - 1);  // the model's ends have none
    now.gradients = std::max(0, now.gradients - 1);
  }

  const PipelineProgram& program_;
  std::vector<HeldInputs> now_, most_;
};

}  // namespace

std::vector<HeldInputs> held_inputs(const PipelineProgram& program) {
  return Tally(program).count();
}

}  // namespace tutti::pipeline
