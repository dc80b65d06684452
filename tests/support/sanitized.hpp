// support/sanitized.hpp - what a test may expect of a build with sanitizers.
#pragma once

namespace tutti::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// A sanitizer's malloc is not made whole for the child of a process with threads, as glibc's is: a lock that another thread
// held is held there for good.
inline constexpr bool kMayAllocateAfterFork = !kSanitized;
// Bounds that tell a prompt end from one by a timeout are times this: instrumented code takes that much longer.
inline constexpr int kSlowness = kSanitized ? 5 : 1;

}  // namespace tutti::test
