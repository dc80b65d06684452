#include "core/exhausted.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/cgroup.hpp"
#include "core/files.hpp"
#include "core/limits.hpp"

namespace tutti {
namespace {

std::uint64_t resource_limit(__rlimit_resource what) {
  rlimit limit{};
  if (::getrlimit(what, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  return limit.rlim_cur;
}

std::string or_none(std::uint64_t limit) {
  return limit == kNoLimit ? "none" : std::to_string(limit);
}

std::string or_none_mib(std::uint64_t limit) {
  return limit == kNoLimit ? "none" : fmt::format("{} MiB", limit >> 20);
}

// Made while there was memory: a status takes some.
const Status kNotEvenWords(Code::out_of_memory,
                           "memory cannot be had, not even to say how much this process has");

Status describe_address_space() {
  const auto pages = first_number(read_text("/proc/self/statm")).value_or(0);
  const auto used = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(::getpagesize());
  return {Code::out_of_memory,
          fmt::format("memory cannot be had: this process has {} MiB of address space (limit: {}; "
                      "ulimit -v)",
                      used >> 20, or_none_mib(resource_limit(RLIMIT_AS)))};
}

}  // namespace

Status out_of_address_space() noexcept {
  try {
    return describe_address_space();
  } catch (const std::bad_alloc&) {
    return kNotEvenWords;
  }
}

Status out_of_threads(const std::system_error& error) {
  const std::string status = read_text("/proc/self/status");
  const auto threads = value_after(status, "Threads:");
  return {Code::out_of_memory,
          fmt::format("a thread cannot be started ({}): this process has {}; the user may have {} "
                      "(ulimit -u), the container {} (pids.max)",
                      error.code().message(), threads ? first_word(*threads) : "?",
                      or_none(resource_limit(RLIMIT_NPROC)),
                      or_none(Cgroup::of(CgroupKind::pids).limit(CgroupKind::pids)))};
}

}  // namespace tutti
