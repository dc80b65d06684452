// core/pause.hpp - a breath between two looks at a word that another core is about to write.
#pragma once

namespace tutti {

inline void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tutti
