// core/check.hpp - for our own bugs: says what was broken and aborts, after the crash hooks ran
// (core/process_hooks.hpp: they dump the flight recorders). Never for a caller's mistake.
#pragma once

namespace tutti {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace tutti

#define TUTTI_CHECK(condition)                  \
  (__builtin_expect(!!(condition), 1) ? void(0) \
                                      : ::tutti::check_failed(#condition, __FILE__, __LINE__))
