#include "tensor_calls.hpp"
#include "tutti/libtorch.hpp"

namespace tutti::libtorch {

namespace {

using Action = std::function<void()>;

// Does nothing in forward; in backward something is done when the gradient comes by.
struct OnGradient : torch::autograd::Function<OnGradient> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const Action& action) {
    context->saved_data["action"] = keep(action);
    return x.view_as(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    kept<Action>(*context, "action")();
    return {gradients[0], torch::Tensor()};
  }
};

torch::Tensor on_gradient(const torch::Tensor& x, const Action& action) {
  return x.requires_grad() && torch::GradMode::is_enabled() ? OnGradient::apply(x, action) : x;
}

}  // namespace

WeightScope::WeightScope(DataParallel* model, const torch::nn::Module& submodule) {
  if (model == nullptr || model->layer().keeps_whole_weights()) return;
  if (auto status = model->need(submodule); !status.ok()) throw GateError(status);
  model_ = model;
  submodule_ = &submodule;
}

WeightScope::~WeightScope() {
  if (model_ != nullptr) model_->done(*submodule_);
}

torch::Tensor WeightScope::enter(const torch::Tensor& x) const {
  if (model_ == nullptr) return x;
  return on_gradient(x, [model = model_, part = submodule_] { model->done(*part); });
}

torch::Tensor WeightScope::leave(const torch::Tensor& y) const {
  if (model_ == nullptr) return y;
  return on_gradient(y, [model = model_, part = submodule_] {
    if (auto status = model->need(*part); !status.ok()) throw GateError(status);
  });
}

}  // namespace tutti::libtorch
