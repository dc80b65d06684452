#include "rotary.hpp"

namespace pretrain {

Rotary::Rotary(const std::vector<std::int64_t>& positions, std::int64_t head_dim, double base) {
  const auto wide = torch::TensorOptions(torch::kDouble);
  const auto exponents = torch::arange(0, head_dim, 2, wide) / static_cast<double>(head_dim);
  const auto turns = torch::pow(torch::scalar_tensor(base, wide), exponents).reciprocal();
  const auto angles =
      torch::outer(torch::tensor(positions, torch::kLong).to(torch::kDouble), turns);
  const auto both = torch::cat({angles, angles}, -1);
  cos_ = both.cos();
  sin_ = both.sin();
}

torch::Tensor Rotary::turn(const torch::Tensor& x) const {
  if (!cos_.defined()) return x;
  const auto type = x.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  const auto whole = x.to(type);
  const auto halves = whole.chunk(2, -1);
  const auto turned = torch::cat({-halves[1], halves[0]}, -1);
  return (whole * cos_.to(type) + turned * sin_.to(type)).to(x.scalar_type());
}

void Rotary::move_to(torch::Device device) {
  if (!cos_.defined()) return;
  cos_ = cos_.to(device);
  sin_ = sin_.to(device);
}

}  // namespace pretrain
