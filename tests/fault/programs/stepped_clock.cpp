// A library to preload: the time of day jumps an hour forth after 0.3 s of a process' life, and two hours back
// after 0.6 s, as where somebody sets a machine's clock. Other clocks go on as they are.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace {

long elapsed_ms() {
  static const timespec start = [] {
    timespec now{};
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return now;
  }();
  timespec now{};
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1'000'000;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (clock != CLOCK_REALTIME || result != 0) return result;
  const long lived = elapsed_ms();
  time->tv_sec += lived > 600 ? -3600 : lived > 300 ? 3600 : 0;
  return result;
}
