// The update's kernels for AVX2; cmake/rooms.cmake compiles this file with it switched on.
#include "train/kernel_table.hpp"
#if defined(__AVX2__) && defined(__F16C__)
#include "train/make_kernels.hpp"
#endif

namespace tutti::train {

const UpdateKernels* avx2_kernels() {
#if defined(__AVX2__) && defined(__F16C__)
  static constexpr UpdateKernels kKernels = make_kernels();
  return &kKernels;
#else
  return nullptr;
#endif
}

}  // namespace tutti::train
