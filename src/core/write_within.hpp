// core/write_within.hpp - writing to a descriptor that others share, without waiting for its reader.
//
// Standard error may be a pipe whose reader has stopped; its flags are not ours to change. So: never
// more at once than a pipe takes whole, never before the kernel says that there is room, and never
// longer than the caller's patience in all.
#pragma once

#include <chrono>
#include <string_view>

namespace tutti {

// 0: all of it was written. Else errno of the failure; EAGAIN: the patience was over.
// Async-signal-safe.
int write_within(int descriptor, std::string_view text,
                 std::chrono::milliseconds patience) noexcept;

}  // namespace tutti
