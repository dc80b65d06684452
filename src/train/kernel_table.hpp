// train/kernel_table.hpp - the update's kernels, one table per instruction set.
//
// Internal to the room, its tests and its benchmark, which run every level that the machine has.
#pragma once

#include "reduce/kernels.hpp"
#include "train/kernels.hpp"

namespace tutti::train {

struct UpdateKernels {
  decltype(&train::adamw) adamw;
  decltype(&train::sgd) sgd;
  decltype(&train::narrow) narrow;
  decltype(&train::widen) widen;
  decltype(&train::first_not_finite) first_not_finite;
  decltype(&train::square_sums) square_sums;
};

// Null when this build has no code for the level; does not ask the processor.
const UpdateKernels* plain_kernels();
const UpdateKernels* avx2_kernels();
const UpdateKernels* avx512_kernels();

const UpdateKernels& update_kernels(reduce::SimdLevel level);  // only when reduce::can_run(level)

}  // namespace tutti::train
