// bindings/libtorch/rank_collectives.hpp - collectives on tensors, among the ranks of a split layer: new tensors
// out, failures thrown, time noted. Alone a rank gets back what it gave.
#pragma once

#include <torch/torch.h>

#include "tutti/libtorch/tensor_parallel.hpp"

namespace tutti::libtorch {

torch::Tensor all_reduced(TensorParallel& ranks, const torch::Tensor& x,
                          ReduceOp op = ReduceOp::sum);
// Parts of a dimension whose length is `length` in all; 0: as many equal parts as there are ranks.
torch::Tensor all_gathered(TensorParallel& ranks, const torch::Tensor& x, std::int64_t dim,
                           std::int64_t length);
torch::Tensor reduce_scattered(TensorParallel& ranks, const torch::Tensor& x, std::int64_t dim);
torch::Tensor own_part(TensorParallel& ranks, const torch::Tensor& x, std::int64_t dim);

// The shape of the whole of which `part` is this rank's. ParallelError when it cannot be.
std::vector<std::int64_t> whole_shape_of(const TensorParallel& ranks, const torch::Tensor& part,
                                         std::int64_t dim, std::int64_t length);

}  // namespace tutti::libtorch
