// Which kernels this build has and this processor can run.
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "core/check.hpp"
#include "reduce/kernels.hpp"

namespace tutti::reduce {
namespace {

#if defined(__x86_64__)
// clang 14 does not know the word for __builtin_cpu_supports.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

bool processor_has(SimdLevel level) {
#if defined(__x86_64__)
  switch (level) {
    case SimdLevel::plain: return true;
    case SimdLevel::avx2: return __builtin_cpu_supports("avx2") && has_f16c();
    case SimdLevel::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && has_f16c();
  }
#endif
  return level == SimdLevel::plain;
}

const Kernels* kernels_of(SimdLevel level) {
  switch (level) {
    case SimdLevel::plain: return plain_kernels();
    case SimdLevel::avx2: return avx2_kernels();
    case SimdLevel::avx512: return avx512_kernels();
  }
  return nullptr;
}

}  // namespace

bool can_run(SimdLevel level) { return kernels_of(level) != nullptr && processor_has(level); }

SimdLevel best_level() {
  if (can_run(SimdLevel::avx512)) return SimdLevel::avx512;
  return can_run(SimdLevel::avx2) ? SimdLevel::avx2 : SimdLevel::plain;
}

const Kernels& kernels_at(SimdLevel level) {
  TUTTI_CHECK(can_run(level));
  return *kernels_of(level);
}

}  // namespace tutti::reduce
