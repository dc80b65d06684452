// The update's kernels for AVX-512 (F, BW, DQ, VL); cmake/rooms.cmake compiles this file with those
// switched on.
#include "train/kernel_table.hpp"
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define TUTTI_HAS_AVX512 1
#include "train/make_kernels.hpp"
#endif

namespace tutti::train {

const UpdateKernels* avx512_kernels() {
#if defined(TUTTI_HAS_AVX512)
  static constexpr UpdateKernels kKernels = make_kernels();
  return &kKernels;
#else
  return nullptr;
#endif
}

}  // namespace tutti::train
