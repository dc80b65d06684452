#include "core/check.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "core/process_hooks.hpp"
#include "core/write_within.hpp"

namespace tutti {
namespace {

constexpr std::chrono::milliseconds kTimeToSay{1000};

}  // namespace

void check_failed(const char* condition, const char* file, int line) {
  // No allocation: the heap may be what is broken.
  char text[512];
  const int size = std::snprintf(
      text, sizeof text, "tutti: internal error: %s does not hold (%s:%d); please report it\n",
      condition, file, line);
  if (size > 0) {
    const auto length = static_cast<std::size_t>(size) < sizeof text ? size : sizeof text - 1;
    (void)write_within(STDERR_FILENO, {text, static_cast<std::size_t>(length)}, kTimeToSay);
  }
  run_dump_hooks();
  std::abort();
}

}  // namespace tutti
