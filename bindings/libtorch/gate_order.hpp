// bindings/libtorch/gate_order.hpp - finds what forward read before its gate was passed.
//
// torch numbers the nodes of a graph as operators make them, thread by thread. Held against the
// number at which each gate was passed, the nodes that lead to a parameter tell which came first.
// Whether its gather happened to be done by then is a matter of luck and does not count.
//
// Thread-safety  one thread at a time. Reads in another thread than the gate's are not judged.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "binding.hpp"

namespace tutti::libtorch {

class GateOrder {
 public:
  explicit GateOrder(std::size_t parameters) : gates_(parameters) {}

  // As train::DataParallel::on_gate tells it.
  void set_open(std::size_t index, bool open);
  // "AddmmBackward0 read parameter 'b.weight' before its gate was passed in this step"; empty: no
  // node of the loss's graph did such a thing.
  std::string early_read(const torch::Tensor& loss, const Binding& binding) const;

 private:
  struct GateState {
    bool open = true;
    std::uint64_t thread = 0;  // that passed it
    std::uint64_t number = 0;  // of the next node in that thread; 0: nothing can have been earlier
  };
  bool is_early(const torch::autograd::Node& reader, std::size_t index) const;

  std::vector<GateState> gates_;
};

}  // namespace tutti::libtorch
