#include "tool/run/descendants.hpp"

#include <dirent.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <thread>

#include "core/clock.hpp"
#include "core/files.hpp"

namespace tutti::tool {
namespace {

// Of "pid (name) state parent …": a name may hold anything, brackets too. 0: it is gone.
pid_t parent_of(pid_t process) {
  const std::string text = read_text(fmt::format("/proc/{}/stat", process).c_str());
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos || end + 4 >= text.size()) return 0;
  return std::atoi(text.c_str() + end + 4);
}

}  // namespace

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), &::closedir);
  if (!folder) return children;
  const pid_t self = ::getpid();
  while (const dirent* entry = ::readdir(folder.get()))
    if (const pid_t process = std::atoi(entry->d_name); process > 0 && parent_of(process) == self)
      children.push_back(process);
  return children;
}

void reap_ended_children(const std::set<pid_t>& spared) {
  for (const pid_t child : children_of_this_process())
    if (!spared.contains(child)) ::waitpid(child, nullptr, WNOHANG);
}

void kill_descendants(const std::set<pid_t>& spared) {
  const Nanoseconds deadline = deadline_after(steady_clock().now(), std::chrono::seconds(5));
  std::set<pid_t> left_alone = spared;
  while (steady_clock().now() < deadline) {
    bool none = true;
    for (const pid_t child : children_of_this_process()) {
      if (left_alone.contains(child)) continue;
      none = false;
      if (::kill(child, SIGKILL) != 0 && errno == EPERM) left_alone.insert(child);
      ::waitpid(child, nullptr, WNOHANG);
    }
    if (none) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace tutti::tool
