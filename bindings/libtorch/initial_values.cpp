#include "tutti/libtorch/initial_values.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include "splitmix.hpp"

namespace tutti::libtorch {

std::uint64_t seed_of_name(std::uint64_t seed, const std::string& name) {
  std::uint64_t mixed = splitmix(seed, 0);
  for (const char letter : name) mixed = splitmix(mixed, static_cast<unsigned char>(letter));
  return mixed;
}

void fill_normal(torch::Tensor part, const Placed& placed, std::uint64_t seed,
                 const std::string& name, double spread) {
  torch::NoGradGuard no_grad;
  auto whole = torch::empty(placed.whole_shape, torch::kFloat);
  whole.normal_(0.0, spread, at::detail::createCPUGenerator(seed_of_name(seed, name)));
  part.view(placed.shape).copy_(box_of(whole, placed));
}

}  // namespace tutti::libtorch
