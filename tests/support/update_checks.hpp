// support/update_checks.hpp - what the kernels of an update have to do, checked against train::reference
// to the bit: on the host, on the emulated driver and on a GPU, as kernel_checks.hpp.
#pragma once

#include "support/kernel_checks.hpp"

namespace tutti::cuda {

// AdamW, SGD, narrow, widen, and both questions about gradients, each on arrays of so many elements, of
// tame and of wild numbers, at several offsets.
testing::AssertionResult check_updates(KernelRunner& runner, std::size_t count,
                                       std::mt19937& random);

}  // namespace tutti::cuda
