#include "tutti/libtorch/placed.hpp"

namespace tutti::libtorch {

Placed Placed::whole_of(const torch::Tensor& tensor) {
  const auto shape = tensor.sizes().vec();
  return {shape, shape, std::vector<std::int64_t>(shape.size(), 0), shape, true, false};
}

Placed Placed::part_of(std::vector<std::int64_t> whole_shape, std::vector<std::int64_t> whole,
                       std::size_t cut, std::int64_t begin, std::int64_t length) {
  Placed placed;
  placed.whole_shape = std::move(whole_shape);
  placed.whole = std::move(whole);
  placed.first.assign(placed.whole.size(), 0);
  placed.first[cut] = begin;
  placed.shape = placed.whole;
  placed.shape[cut] = length;
  placed.replicated = placed.shape == placed.whole;
  return placed;
}

torch::Tensor box_of(const torch::Tensor& whole, const Placed& placed) {
  torch::Tensor box = whole.view(placed.whole);
  for (std::size_t d = 0; d < placed.whole.size(); ++d)
    box = box.narrow(static_cast<std::int64_t>(d), placed.first[d], placed.shape[d]);
  return box;
}

}  // namespace tutti::libtorch
