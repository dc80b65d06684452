#include "tool/run/memory_kills.hpp"

#include <fmt/format.h>

#include <utility>

namespace tutti::tool {
namespace {

// Version 1 says "no limit" by a number that no machine has.
constexpr std::uint64_t kMoreThanAny = std::uint64_t{1} << 60;

std::string name_of(const Cgroup& group) {
  return group.folders.empty() ? std::string() : group.folders.front();
}

}  // namespace

MemoryKills::MemoryKills() : own_(Cgroup::of(CgroupKind::memory)) {
  known_[name_of(own_)] = own_.memory_kills();
  known_on_host_ = Cgroup().memory_kills();
}

std::string MemoryKills::explain(const Cgroup& group) {
  const std::uint64_t on_host = Cgroup().memory_kills();
  if (on_host <= std::exchange(known_on_host_, on_host)) return {};
  // Version 1 does not say any more which group a dead process was in: mostly it is the launcher's.
  for (const Cgroup& one : {group, own_}) {
    const std::uint64_t kills = one.memory_kills();
    if (kills <= std::exchange(known_[name_of(one)], kills)) continue;
    const std::uint64_t limit = one.limit(CgroupKind::memory);
    if (limit < kMoreThanAny)
      return fmt::format(
          "; the kernel killed it for want of memory (its control group may have {} MiB)",
          limit >> 20);
  }
  return "; the kernel has killed a process of this host for want of memory";
}

}  // namespace tutti::tool
