// The kernels for whatever the build's baseline is: vectors of 16 bytes.
#include "reduce/make_kernels.hpp"

namespace tutti::reduce {

const Kernels* plain_kernels() {
  static constexpr Kernels kKernels = make_kernels();
  return &kKernels;
}

}  // namespace tutti::reduce
