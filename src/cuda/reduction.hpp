// cuda/reduction.hpp - how a fold of reduce/fold.hpp is told to a kernel, and which kernel does it.
//
// A fold on the device gives the bits of reduce::fold: the same rules decide what the kernel is to do.
#pragma once

#include "cuda/job.hpp"
#include "reduce/fold.hpp"

namespace tutti::cuda {

// Whether kernels can: not with a function of the user's.
bool has_kernel(const reduce::Folding& folding);

// Sets op, scalar, ranks and copies from `folding`, which must have a kernel, and the operands that are
// in `fold` already.
void set_reduction(Fold& fold, const reduce::Folding& folding);

// The dtype whose kernel does `op` on `dtype`: unsigned integers' where sign does not matter.
Dtype kernel_dtype(Dtype dtype, ReduceOp op);

}  // namespace tutti::cuda
