// tool/run/memory_kills.hpp - whether the kernel killed a rank for want of memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/cgroup.hpp"

namespace tutti::tool {

class MemoryKills {
 public:
  // Notes how many there were so far in the launcher's own control group.
  MemoryKills();
  // Of a process in `group` that died of SIGKILL: why, for the end of a sentence; empty where the kernel
  // killed nobody since.
  std::string explain(const Cgroup& group);

 private:
  Cgroup own_;
  std::map<std::string, std::uint64_t> known_;  // kills of each group, by its folder
  std::uint64_t known_on_host_ = 0;
};

}  // namespace tutti::tool
