// tool/run/descendants.hpp - what is below this process, and how to end all of it.
//
// Of a subreaper (PR_SET_CHILD_SUBREAPER): a process whose parent is gone becomes its child, whatever
// session it made for itself. So killing children until there are none ends every descendant.
#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

namespace tutti::tool {

// By a walk through /proc.
std::vector<pid_t> children_of_this_process();
// Waits for those children that have ended, but for `spared`.
void reap_ended_children(const std::set<pid_t>& spared);
// Returns when there is no child but `spared`; gives up on what the kernel will not end, or not let
// this user end, after a few seconds.
void kill_descendants(const std::set<pid_t>& spared);

}  // namespace tutti::tool
