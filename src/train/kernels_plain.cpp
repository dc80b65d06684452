// The update's kernels for whatever the build's baseline is: vectors of 16 bytes.
#include "train/make_kernels.hpp"

namespace tutti::train {

const UpdateKernels* plain_kernels() {
  static constexpr UpdateKernels kKernels = make_kernels();
  return &kKernels;
}

}  // namespace tutti::train
