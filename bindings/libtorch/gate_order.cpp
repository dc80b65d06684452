#include "gate_order.hpp"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <unordered_set>

namespace tutti::libtorch {

void GateOrder::set_open(std::size_t index, bool open) {
  gates_[index] = {open, at::RecordFunction::currentThreadId(), at::sequence_number::peek()};
}

bool GateOrder::is_early(const torch::autograd::Node& reader, std::size_t index) const {
  const GateState& gate = gates_[index];
  if (!gate.open) return true;
  return reader.thread_id() == gate.thread && reader.sequence_nr() < gate.number;
}

std::string GateOrder::early_read(const torch::Tensor& loss, const Binding& binding) const {
  std::vector<torch::autograd::Node*> waiting;
  std::unordered_set<const torch::autograd::Node*> seen;
  if (loss.grad_fn() != nullptr) waiting.push_back(loss.grad_fn().get());
  while (!waiting.empty()) {
    torch::autograd::Node& reader = *waiting.back();
    waiting.pop_back();
    for (const torch::autograd::Edge& edge : reader.next_edges()) {
      if (edge.function == nullptr) continue;
      const std::size_t index = binding.index_of(*edge.function);
      if (index == binding.size()) {
        if (seen.insert(edge.function.get()).second) waiting.push_back(edge.function.get());
      } else if (is_early(reader, index)) {
        return reader.name() + " read parameter '" + binding.name(index) +
               "' before its gate was passed in this step";
      }
    }
  }
  return {};
}

}  // namespace tutti::libtorch
