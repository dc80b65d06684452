// Which kernels this build has and this processor can run.
#include "core/check.hpp"
#include "reduce/kernels.hpp"

namespace tutti::reduce {
namespace {

bool processor_has(Level level) {
#if defined(__x86_64__)
  switch (level) {
    case Level::plain: return true;
    case Level::avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    case Level::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("f16c");
  }
#endif
  return level == Level::plain;
}

const Kernels* kernels_of(Level level) {
  switch (level) {
    case Level::plain: return plain_kernels();
    case Level::avx2: return avx2_kernels();
    case Level::avx512: return avx512_kernels();
  }
  return nullptr;
}

}  // namespace

bool can_run(Level level) { return kernels_of(level) != nullptr && processor_has(level); }

Level best_level() {
  if (can_run(Level::avx512)) return Level::avx512;
  return can_run(Level::avx2) ? Level::avx2 : Level::plain;
}

const Kernels& kernels_at(Level level) {
  TUTTI_CHECK(can_run(level));
  return *kernels_of(level);
}

}  // namespace tutti::reduce
