#include "core/limits.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/files.hpp"

namespace tutti {

std::uint64_t limit_in(const char* path) {
  const auto number = first_number(read_text(path));
  return number ? static_cast<std::uint64_t>(*number) : kNoLimit;
}

std::uint64_t available_memory_bytes() {
  std::uint64_t available = kNoLimit;
  const std::string host = read_text("/proc/meminfo");
  if (const auto value = value_after(host, "MemAvailable:"))
    if (const auto kib = first_number(*value)) available = static_cast<std::uint64_t>(*kib) * 1024;
  const std::uint64_t limit = limit_in("/sys/fs/cgroup/memory.max");
  const std::uint64_t used = limit_in("/sys/fs/cgroup/memory.current");
  if (limit != kNoLimit && used != kNoLimit) {
    // Cached files count as used, and go when memory is wanted.
    const std::string parts = read_text("/sys/fs/cgroup/memory.stat");
    std::uint64_t cached = 0;
    for (const char* name : {"inactive_file ", "active_file "})
      if (const auto value = value_after(parts, name))
        cached += static_cast<std::uint64_t>(first_number(*value).value_or(0));
    available = std::min(available, limit - std::min(limit, used - std::min(used, cached)));
  }
  return available;
}

std::size_t open_descriptors() {
  std::error_code failure;
  std::filesystem::directory_iterator each("/proc/self/fd", failure);
  std::size_t count = 0;
  for (; !failure && each != std::filesystem::directory_iterator(); each.increment(failure))
    ++count;
  return count;
}

std::uint64_t allow_descriptors(std::uint64_t needed) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kNoLimit;
  if (limit.rlim_cur >= needed) return limit.rlim_cur;
  limit.rlim_cur = std::min<rlim_t>(needed, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace tutti
