// core/secret.hpp - how the job's secret reaches a process: by descriptor or by file, never by
// argv, environment or log.
#pragma once

#include <string>

#include "tutti/status.hpp"

namespace tutti {

inline constexpr std::size_t kSecretBytes = 32;
inline constexpr std::size_t kMaxSecretBytes = 4096;

// A sealed memory file that holds `secret`. It can be read any number of times through every
// inherited copy of the descriptor, has no name and dies with its last holder. Close-on-exec is
// set; clear it in the child that is to inherit it.
Result<int> make_secret_descriptor(const std::string& secret);

// Reads from the start and leaves the descriptor open: a program may ask twice, or start another.
Result<std::string> read_secret_descriptor(int descriptor);

// The whole file. It must belong to this user and be closed to everybody else (mode 0600 or 0400);
// anything else is Code::invalid_argument that says what to do.
Result<std::string> read_secret_file(const std::string& path);

}  // namespace tutti
