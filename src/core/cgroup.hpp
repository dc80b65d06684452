// core/cgroup.hpp - the control groups of a process: what it may have, and who was killed for more.
//
// Versions 1 and 2 side by side, as hosts have them. Groups lie in each other, and the tightest limit
// on the way up counts.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

enum class CgroupKind { memory, pids };

// The folders of a process's group and of those around it, innermost first; empty where there is none.
struct Cgroup {
  std::vector<std::string> folders;
  bool unified = false;  // version 2

  static Cgroup of(CgroupKind kind, pid_t process = 0);  // 0: this one
  // The same, from the texts of /proc/PID/cgroup and /proc/PID/mountinfo.
  static Cgroup read(CgroupKind kind, const std::string& groups, const std::string& mounts);

  // What can still be had, of memory in bytes or of processes and threads; kNoLimit: no limit.
  std::uint64_t room(CgroupKind kind) const;
  // The tightest limit itself.
  std::uint64_t limit(CgroupKind kind) const;
  // How many of its processes the kernel has killed for want of memory, ever; of the whole host where
  // the group does not say, or is none.
  std::uint64_t memory_kills() const;
};

}  // namespace tutti
