// The kernels for AVX-512 (F, BW, DQ, VL); cmake/rooms.cmake compiles this file with those switched
// on.
#include "reduce/kernels.hpp"
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define TUTTI_HAS_AVX512 1
#include "reduce/make_kernels.hpp"
#endif

namespace tutti::reduce {

const Kernels* avx512_kernels() {
#if defined(TUTTI_HAS_AVX512)
  static constexpr Kernels kKernels = make_kernels();
  return &kKernels;
#else
  return nullptr;
#endif
}

}  // namespace tutti::reduce
