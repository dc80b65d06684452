#include "lean.hpp"

#include <numeric>
#include <vector>

namespace pretrain {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

torch::Tensor widened(const torch::Tensor& x) {
  return x.scalar_type() == torch::kDouble ? x : x.to(torch::kFloat);
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight, double epsilon) {
    const auto wide = widened(x);
    const auto scale = torch::rsqrt(wide.square().mean(-1, true) + epsilon);
    context->save_for_backward({x, weight, scale});
    return (wide * scale).to(x.scalar_type()) * weight;
  }

  // With n = x·scale: dx = scale · (dn − n · mean(dn · n)), where dn = dy · weight.
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const auto& scale = saved[2];
    const auto normed = widened(x) * scale;
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(x.dim() - 1));
    std::iota(tokens.begin(), tokens.end(), 0);
    const auto weight = (gradients[0] * normed.to(x.scalar_type())).sum(tokens);
    const auto slope = widened(gradients[0] * saved[1]);
    const auto along = (slope * normed).mean(-1, true);
    return {(scale * (slope - normed * along)).to(x.scalar_type()), weight, torch::Tensor()};
  }
};

struct GatedSilu : torch::autograd::Function<GatedSilu> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x) {
    context->save_for_backward({x});
    const auto parts = x.chunk(2, -1);
    return torch::silu(parts[0]) * parts[1];
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto parts = context->get_saved_variables()[0].chunk(2, -1);
    const auto gate = at::silu_backward(gradients[0] * parts[1], parts[0]);
    return {torch::cat({gate, gradients[0] * torch::silu(parts[0])}, -1)};
  }
};

}  // namespace

torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double epsilon) {
  return RmsNorm::apply(x, weight, epsilon);
}

torch::Tensor gated_silu(const torch::Tensor& x) { return GatedSilu::apply(x); }

}  // namespace pretrain
