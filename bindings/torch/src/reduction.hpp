// reduction.hpp - torch's ReduceOp in tutti's words.
#pragma once

#include <ATen/core/Tensor.h>

#include "compat.hpp"
#include "tutti/types.hpp"

namespace tutti_torch {

// Refuses what has no meaning for elements of this type, such as BAND of floats or MAX of complex.
tutti::Reduction reduction_of(const char* operation, const c10d::ReduceOp& op,
                              const at::Tensor& tensor);

}  // namespace tutti_torch
