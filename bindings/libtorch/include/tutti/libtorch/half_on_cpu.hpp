// tutti/libtorch/half_on_cpu.hpp - what torch does not do with float16 on the CPU.
//
// Older ones (1.13) have no matrix product, softmax, norm or activation function for it there, and none has a quick one.
// There it is done in float32, and the result is rounded once: plain, as right as any, and slow. On a GPU, and with
// other types, it is done as it is.
//
//   y = in_f32_on_cpu(x, [](const torch::Tensor& wide) { return torch::gelu(wide); });
#pragma once

#include <torch/torch.h>

namespace tutti::libtorch {

inline bool is_half_on_cpu(const torch::Tensor& x) {
  return x.scalar_type() == torch::kHalf && x.device().is_cpu();
}

// For operands: themselves, or wide.
inline torch::Tensor widened_on_cpu(const torch::Tensor& x) {
  return x.defined() && is_half_on_cpu(x) ? x.to(torch::kFloat) : x;
}

template <class Operation>
torch::Tensor in_f32_on_cpu(const torch::Tensor& x, const Operation& operation) {
  return is_half_on_cpu(x) ? operation(x.to(torch::kFloat)).to(torch::kHalf) : operation(x);
}

}  // namespace tutti::libtorch
