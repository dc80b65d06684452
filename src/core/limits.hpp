// core/limits.hpp - how much of the machine this process may have.
#pragma once

#include <cstdint>
#include <limits>

namespace tutti {

inline constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// The number in a file of one; what cannot be read ("max", or no such file) is no limit.
std::uint64_t limit_in(const char* path);
// Memory that can still be taken, of the host and of the process's control groups.
std::uint64_t available_memory_bytes();
// That this process has open now.
std::size_t open_descriptors();
// Makes the soft limit of open files at least `needed`, as far as the hard one allows, and returns
// what the process may have now.
std::uint64_t allow_descriptors(std::uint64_t needed);

}  // namespace tutti
