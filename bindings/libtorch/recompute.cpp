#include "tutti/libtorch/recompute.hpp"

#include <mutex>
#include <utility>

#include "tensor_calls.hpp"

namespace tutti::libtorch {

namespace {

using torch::autograd::AutogradContext;
using Tensors = torch::autograd::variable_list;
using Part = std::function<Tensors(const Tensors&)>;

// The generators that a part may draw from: the processor's, and those of its inputs' GPUs.
class RandomStates {
 public:
  static RandomStates now(const Tensors& inputs) {
    RandomStates states;
    states.add(torch::kCPU);
    for (const torch::Tensor& input : inputs)
      if (input.device().is_cuda()) states.add(input.device());
    return states;
  }
  // What they are now.
  RandomStates again() const {
    RandomStates states;
    for (const State& one : states_) states.add(one.device);
    return states;
  }
  void restore() const {
    for (const State& one : states_) {
      at::Generator generator = generator_of(one.device);
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(one.bytes);
    }
  }

 private:
  struct State {
    torch::Device device;
    torch::Tensor bytes;
  };
  static at::Generator generator_of(torch::Device device) {
    return at::globalContext().defaultGenerator(device);
  }
  void add(torch::Device device) {
    for (const State& one : states_)
      if (one.device == device) return;
    at::Generator generator = generator_of(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    states_.push_back({device, generator.get_state()});
  }

  std::vector<State> states_;
};

// What a node keeps besides the inputs.
struct Again {
  Part part;
  RandomStates random;
  std::vector<bool> wants_gradient;
};

Tensors run_again(const Again& again, const Tensors& inputs) {
  const torch::AutoGradMode with_graph(true);
  const RandomStates now = again.random.again();
  again.random.restore();
  try {
    Tensors outputs = again.part(inputs);
    now.restore();
    return outputs;
  } catch (...) {
    now.restore();
    throw;
  }
}

// `anchor` has a gradient, so that the outputs have one where no input does.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static Tensors forward(AutogradContext* context, const Part& part, bool keeps_random_state,
                         const torch::Tensor& anchor, const at::TensorList& given) {
    (void)anchor;
    const Tensors inputs = given.vec();
    Again again{part, {}, {}};
    if (keeps_random_state) again.random = RandomStates::now(inputs);
    for (const torch::Tensor& input : inputs) again.wants_gradient.push_back(input.requires_grad());
    context->save_for_backward(inputs);
    context->saved_data["again"] = keep(std::move(again));
    return part(inputs);
  }

  static Tensors backward(AutogradContext* context, Tensors gradients) {
    const auto& again = kept<Again>(*context, "again");
    const Tensors saved = context->get_saved_variables();
    Tensors inputs;
    for (std::size_t i = 0; i < saved.size(); ++i)
      inputs.push_back(saved[i].detach().set_requires_grad(again.wants_gradient[i]));
    const Tensors outputs = run_again(again, inputs);
    TORCH_CHECK(outputs.size() == gradients.size(), "a part that is computed again gave ",
                outputs.size(), " tensors, and ", gradients.size(), " the first time");
    Tensors roots, root_gradients;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad() || !gradients[i].defined()) continue;
      roots.push_back(outputs[i]);
      root_gradients.push_back(gradients[i]);
    }
    if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
    Tensors found(3);  // of the part, the option and the anchor there are none
    for (const torch::Tensor& input : inputs) found.push_back(input.grad());
    return found;
  }
};

}  // namespace

Tensors recompute(Part part, const Tensors& inputs, RecomputeOptions options) {
  if (!torch::GradMode::is_enabled()) return part(inputs);
  const auto anchor = torch::empty({0}).requires_grad_();
  return Recomputed::apply(part, options.keeps_random_state, anchor, at::TensorList(inputs));
}

torch::Tensor recompute(std::function<torch::Tensor(const torch::Tensor&)> part,
                        const torch::Tensor& input, RecomputeOptions options) {
  return recompute(
      [part = std::move(part)](const Tensors& inputs) -> Tensors { return {part(inputs[0])}; },
      Tensors{input}, options)[0];
}

}  // namespace tutti::libtorch
