// apps/pretrain_gpt/lean.hpp - parts of a layer whose backward reads their inputs alone: what torch's own operations
// would keep besides is computed again.
#pragma once

#include <torch/torch.h>

namespace pretrain {

// x / √(mean of x² over the last dimension + epsilon) · weight; squares of narrow floats are summed in f32.
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double epsilon);

// silu(a) · b of x = [a, b], halves of the last dimension.
torch::Tensor gated_silu(const torch::Tensor& x);

}  // namespace pretrain
