// bindings/libtorch/parallel_linear.hpp - y = x · weightᵀ + bias, where x may come from, and y may go to, ranks.
//
//   input      as_is      x is this rank's own
//              copied     the same on all ranks: its gradient is a sum over them
//              gathered   a part of the sequence: all_gather before, reduce_scatter of the gradient
//   output     as_is      y is this rank's own
//              reduced    a sum over ranks
//              scattered  a part of the sequence of that sum: reduce_scatter, all_gather of the gradient
//
// Rows of gathered tensors are kept rank by rank (row_blocks.hpp), in forward and backward alike; only what torch
// gets to see is in natural order. With overlap:
//
//   forward    gathered: pieces come in beside the products of earlier ones; scattered: the reverse
//   backward   gathered: x is gathered again, and dx scattered in pieces, beside dx = dy · W and dW = dyᵀ · x
//              scattered: dy is gathered in pieces beside dx = dy · W
//              copied: dx is summed beside dW
#pragma once

#include "tutti/libtorch/tensor_parallel.hpp"

namespace tutti::libtorch {

enum class LinearInput { as_is, copied, gathered };
enum class LinearOutput { as_is, reduced, scattered };

struct LinearWays {
  SharedTensorParallel ranks;  // null: as_is on both sides
  LinearInput input = LinearInput::as_is;
  LinearOutput output = LinearOutput::as_is;
  WeightQueue* queue = nullptr;  // null: the weight's gradient is computed in backward
};

// `bias` may be undefined; with output reduced or scattered it must be.
torch::Tensor linear_by(const LinearWays& ways, const torch::Tensor& x, const torch::Tensor& weight,
                        const torch::Tensor& bias);

}  // namespace tutti::libtorch
