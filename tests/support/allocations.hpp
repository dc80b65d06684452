// tests/support/allocations.hpp - counts every way to malloc, that of operator new in libstdc++ too, on the
// calling thread, and lets them fail there. Defines malloc itself: for one source of a program, and not under a sanitizer, which
// has its own.
#pragma once

#include <cstdlib>

namespace tutti::test {
inline thread_local int allocations = 0;
// Those that fail: so many, after so many that do not.
inline thread_local long good_ones = 0;
inline thread_local long bad_ones = 0;

inline bool is_good() {
  ++allocations;
  if (bad_ones == 0 || good_ones-- > 0) return true;
  return --bad_ones, false;
}
}

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void* malloc(std::size_t bytes) {
  if (!tutti::test::is_good()) return nullptr;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  if (!tutti::test::is_good()) return nullptr;
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  if (!tutti::test::is_good()) return nullptr;
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  if (!tutti::test::is_good()) return nullptr;
  return __libc_memalign(alignment, bytes);
}
}
