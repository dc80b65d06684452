// The fold that no library can beat: plain loops over mapped arrays, compiled for the vectors that
// this machine has.
#include <algorithm>
#include <cstring>

#include "tool/bench/floor.hpp"

namespace tutti::tool {
namespace {

#define ALWAYS_INLINE [[gnu::always_inline]] inline

// The number of arrays is known to the compiler: everything stays in registers.
template <int K, bool kPutAll>
ALWAYS_INLINE void fold_fixed(float* const* sources, float* const* targets, std::size_t count) {
  float* from[K];
  for (int k = 0; k < K; ++k) from[k] = sources[k];
  float* const to = targets[0];
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    float sum = from[0][i];
    for (int k = 1; k < K; ++k) sum += from[k][i];
    if (kPutAll)
      for (int k = 0; k < K; ++k) from[k][i] = sum;
    else
      to[i] = sum;
  }
}

// Any number of arrays, by blocks that stay in the first-level cache.
ALWAYS_INLINE void fold_blocks(float* const* sources, int source_count, float* const* targets,
                               int target_count, std::size_t count) {
  constexpr std::size_t kBlock = 1024;
  float sums[kBlock];
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t now = std::min(kBlock, count - at);
    std::memcpy(sums, sources[0] + at, now * sizeof(float));
    for (int k = 1; k < source_count; ++k) {
      const float* from = sources[k] + at;
#pragma GCC ivdep
      for (std::size_t i = 0; i < now; ++i) sums[i] += from[i];
    }
    for (int t = 0; t < target_count; ++t) std::memcpy(targets[t] + at, sums, now * sizeof(float));
  }
}

template <bool kPutAll>
ALWAYS_INLINE bool fold_few(float* const* sources, int source_count, float* const* targets,
                            std::size_t count) {
  switch (source_count) {
    case 2: fold_fixed<2, kPutAll>(sources, targets, count); return true;
    case 3: fold_fixed<3, kPutAll>(sources, targets, count); return true;
    case 4: fold_fixed<4, kPutAll>(sources, targets, count); return true;
    case 8: fold_fixed<8, kPutAll>(sources, targets, count); return true;
    default: return false;
  }
}

ALWAYS_INLINE void fold_any(float* const* sources, int source_count, float* const* targets,
                            int target_count, std::size_t count) {
  const bool in_place = sources == targets && source_count == target_count;
  if (in_place && fold_few<true>(sources, source_count, targets, count)) return;
  if (target_count == 1 && fold_few<false>(sources, source_count, targets, count)) return;
  fold_blocks(sources, source_count, targets, target_count, count);
}

#if defined(__x86_64__)
[[gnu::target("avx512f,prefer-vector-width=512")]] void fold_avx512(float* const* sources,
                                                                    int source_count,
                                                                    float* const* targets,
                                                                    int target_count,
                                                                    std::size_t count) {
  fold_any(sources, source_count, targets, target_count, count);
}
[[gnu::target("avx2")]] void fold_avx2(float* const* sources, int source_count,
                                       float* const* targets, int target_count, std::size_t count) {
  fold_any(sources, source_count, targets, target_count, count);
}
#endif

}  // namespace

void fold_and_put(float* const* sources, int source_count, float* const* targets, int target_count,
                  std::size_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f"))
    return fold_avx512(sources, source_count, targets, target_count, count);
  if (__builtin_cpu_supports("avx2"))
    return fold_avx2(sources, source_count, targets, target_count, count);
#endif
  fold_any(sources, source_count, targets, target_count, count);
}

}  // namespace tutti::tool
