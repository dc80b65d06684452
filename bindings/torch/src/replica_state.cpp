// The optimizer's state in whole tensors, as torch keeps it, and checkpoints.
#include <ATen/ATen.h>

#include "errors.hpp"
#include "replica.hpp"

namespace tutti_torch {
namespace {

namespace train = tutti::train;

float* elements(const at::Tensor& tensor, std::size_t first) {
  return tensor.data_ptr<float>() + first;
}

// Rank by rank other elements are there, and the rest are zeros.
void put_together(tutti::Group& group, const at::Tensor& tensor) {
  const auto count = static_cast<std::size_t>(tensor.numel());
  check(group.all_reduce(tutti::Buffer::of(elements(tensor, 0), count), tutti::ReduceOp::sum));
}

}  // namespace

std::vector<ParameterState> TorchReplica::state() {
  parameters_ready();
  train::DataParallel& layer = this->layer();
  const auto& parameters = layer.parameters();
  const auto& options = layer.options();
  std::vector<ParameterState> state(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].frozen) continue;
    const auto add = [&](const char* name) { state[i][name] = at::zeros(parameters[i].shape); };
    if (parameters[i].value.dtype != tutti::Dtype::f32) add("main");
    if (std::holds_alternative<train::AdamW>(options.optimizer)) {
      add("exp_avg");
      add("exp_avg_sq");
    } else {
      add("momentum");
    }
  }
  for (const train::StatePiece& piece : layer.state())
    check(layer.read(piece.values,
                     elements(state[piece.parameter].at(std::string(piece.name)), piece.first)));
  if (options.zero.value_or(0) > 0)
    for (const ParameterState& one : state)
      for (const auto& [name, tensor] : one) put_together(layer.group(), tensor);
  return state;
}

void TorchReplica::set_state(const std::vector<ParameterState>& state,
                             const std::vector<std::int64_t>& steps) {
  train::DataParallel& layer = this->layer();
  if (state.size() != layer.parameters().size())
    refuse("load_state_dict", "there are " + std::to_string(state.size()) + " states for " +
                                  std::to_string(layer.parameters().size()) + " parameters");
  check(layer.adopt_parameters());  // main weights follow, where none are given
  for (const train::StatePiece& piece : layer.state()) {
    const auto& of_one = state[piece.parameter];
    const auto found = of_one.find(std::string(piece.name));
    if (found == of_one.end()) continue;
    const auto& parameter = layer.parameters()[piece.parameter];
    if (found->second.sizes() != at::IntArrayRef(parameter.shape))
      refuse("load_state_dict", "'" + found->first + "' of parameter '" + parameter.name +
                                    "' has the shape " + shape_of(found->second));
    const at::Tensor values = found->second.to(at::kCPU, at::kFloat).contiguous();
    check(layer.write(piece.values, elements(values, piece.first)));
  }
  check(layer.set_step_counts(steps));
  check(layer.adopt_state(step_));
}

void TorchReplica::save(const std::string& folder, train::CheckpointInfo info, int keep) {
  info.ranks = layer().everyone().size();
  info.order = layer().order();
  check(train::save_checkpoint(layer(), folder, info, keep));
}

train::CheckpointInfo TorchReplica::load(const std::string& path) {
  train::CheckpointInfo info = take(train::load_checkpoint(layer(), path));
  step_ = info.iteration;
  return info;
}

}  // namespace tutti_torch
