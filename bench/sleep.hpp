// bench/sleep.hpp - compute that takes as long as it is said to, and no core.
#pragma once

#include <time.h>

#include <cstdint>

namespace tutti::bench {

inline void sleep_for(double seconds) {
  timespec until{};
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  const auto ns = static_cast<std::int64_t>(seconds * 1e9) + until.tv_nsec;
  until.tv_sec += ns / 1'000'000'000;
  until.tv_nsec = ns % 1'000'000'000;
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
}

}  // namespace tutti::bench
