#include "core/limits.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/cgroup.hpp"
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
  const Cgroup own = Cgroup::of(CgroupKind::memory);
  return std::min(available, own.room(CgroupKind::memory));
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
