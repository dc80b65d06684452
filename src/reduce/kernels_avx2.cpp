// The kernels for AVX2 with F16C; cmake/rooms.cmake compiles this file with those switched on.
#include "reduce/kernels.hpp"
#if defined(__AVX2__) && defined(__F16C__)
#include "reduce/make_kernels.hpp"
#endif

namespace tutti::reduce {

const Kernels* avx2_kernels() {
#if defined(__AVX2__) && defined(__F16C__)
  static constexpr Kernels kKernels = make_kernels();
  return &kKernels;
#else
  return nullptr;
#endif
}

}  // namespace tutti::reduce
