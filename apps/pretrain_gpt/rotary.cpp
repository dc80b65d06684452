#include "rotary.hpp"

namespace pretrain {

namespace {

// Llama 3.1: turns that take longer than the original positions over `low` are slowed by `factor`, those that take
// less than that over `high` are not, and those between are mixed.
torch::Tensor scaled(const torch::Tensor& turns, const tutti::train::RopeScaling& scaling) {
  constexpr double kCircle = 6.283185307179586;
  const double low = scaling.low_frequency_factor, high = scaling.high_frequency_factor;
  const auto rounds = static_cast<double>(scaling.original_positions) * turns / kCircle;
  const auto kept = ((rounds - low) / (high - low)).clamp(0, 1);
  return turns * (kept + (1 - kept) / scaling.factor);
}

}  // namespace

Rotary::Rotary(const std::vector<std::int64_t>& positions, std::int64_t head_dim, double base,
               const std::optional<tutti::train::RopeScaling>& scaling) {
  const auto wide = torch::TensorOptions(torch::kDouble);
  const auto exponents = torch::arange(0, head_dim, 2, wide) / static_cast<double>(head_dim);
  auto turns = torch::pow(torch::scalar_tensor(base, wide), exponents).reciprocal();
  if (scaling) turns = scaled(turns, *scaling);
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
