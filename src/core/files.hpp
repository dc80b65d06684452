// core/files.hpp - small files, such as those of /proc and /sys, read without iostreams.
//
// The library uses no iostreams at all (tests/hygiene checks it): torch's wheels export a C++ runtime
// of their own, and in a process that has loaded one a std::ifstream reads nonsense or crashes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/status.hpp"

namespace tutti {

// More than any file holds that people write, and little enough to read at once by mistake.
inline constexpr std::size_t kMostFileBytes = std::size_t{64} << 20;

// The whole of a file. Code::io names it, also where it does not end after `most_bytes` (/dev/zero).
Result<std::string> read_file(const std::string& path, std::size_t most_bytes = kMostFileBytes);
// The same, empty when it cannot be read.
std::string read_text(const std::string& path, std::size_t most_bytes = kMostFileBytes);

// Whether `descriptor` is a regular file that belongs to this user and to which others have no access.
// Code::invalid_argument says what to do; `what` and `path` name it ("secret file", "job.key").
Status check_private_file(int descriptor, std::string_view what, const std::string& path);

// What stands before the first blank or the end.
std::string_view first_word(std::string_view text);
// The number at the beginning, after blanks; nothing where there is none ("max").
std::optional<std::int64_t> first_number(std::string_view text);
// What follows `key` in a text of lines, up to the end of the line, without blanks before it.
std::optional<std::string_view> value_after(std::string_view text, std::string_view key);

}  // namespace tutti
