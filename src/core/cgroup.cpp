#include "core/cgroup.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/files.hpp"
#include "core/limits.hpp"
#include "core/words.hpp"

namespace tutti {
namespace {

std::string_view controller_of(CgroupKind kind) {
  return kind == CgroupKind::memory ? "memory" : "pids";
}

bool lists(std::string_view words, std::string_view word) {
  for (const std::string_view one : split_words(words, ','))
    if (one == word) return true;
  return false;
}

// Where a hierarchy is mounted, and which of its groups lies there: in a container not the first.
struct Mount {
  std::string root;
  std::string folder;
};

// A line of mountinfo: "36 35 98:0 /root /folder options … - type source options of the hierarchy".
Mount find_mount(const std::string& mounts, bool unified, std::string_view controller) {
  for (const std::string_view line : split_words(mounts, '\n')) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto before = split_words(line.substr(0, dash), ' ');
    const auto after = split_words(line.substr(dash + 3), ' ');
    if (before.size() < 5 || after.size() < 3) continue;
    const bool fits =
        unified ? after[0] == "cgroup2" : after[0] == "cgroup" && lists(after.back(), controller);
    if (fits) return {std::string(before[3]), std::string(before[4])};
  }
  return {};
}

std::uint64_t number_in(const std::string& folder, const char* file) {
  return limit_in(fmt::format("{}/{}", folder, file).c_str());
}

// Cached files count as used, and go when memory is wanted.
std::uint64_t cached_in(const std::string& folder, bool unified) {
  const std::string parts = read_text(fmt::format("{}/memory.stat", folder));
  std::uint64_t cached = 0;
  for (const char* name : {"inactive_file ", "active_file "})
    if (const auto value = value_after(parts, unified ? name : fmt::format("total_{}", name)))
      cached += static_cast<std::uint64_t>(first_number(*value).value_or(0));
  return cached;
}

}  // namespace

Cgroup Cgroup::of(CgroupKind kind, pid_t process) {
  const std::string self = process == 0 ? "self" : std::to_string(process);
  return read(kind, read_text(fmt::format("/proc/{}/cgroup", self)),
              read_text("/proc/self/mountinfo"));
}

Cgroup Cgroup::read(CgroupKind kind, const std::string& groups, const std::string& mounts) {
  // Lines "4:memory:/path", and "0::/path" of version 2, which has what no other line has.
  Cgroup cgroup;
  std::string path;
  for (const std::string_view line : split_words(groups, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view names = line.substr(first + 1, second - first - 1);
    const bool own = lists(names, controller_of(kind));
    if (!own && (!names.empty() || !path.empty())) continue;
    path = line.substr(second + 1);
    cgroup.unified = !own;
  }
  const Mount mount = find_mount(mounts, cgroup.unified, controller_of(kind));
  if (path.empty() || mount.folder.empty()) return cgroup;
  if (mount.root != "/" && path.starts_with(mount.root)) path = path.substr(mount.root.size());
  for (; path.size() > 1; path.resize(path.rfind('/')))
    cgroup.folders.push_back(mount.folder + path);
  cgroup.folders.push_back(mount.folder);
  return cgroup;
}

std::uint64_t Cgroup::limit(CgroupKind kind) const {
  const char* file = kind == CgroupKind::pids ? "pids.max"
                     : unified                ? "memory.max"
                                              : "memory.limit_in_bytes";
  std::uint64_t least = kNoLimit;
  for (const std::string& folder : folders) least = std::min(least, number_in(folder, file));
  return least;
}

std::uint64_t Cgroup::room(CgroupKind kind) const {
  std::uint64_t least = kNoLimit;
  for (const std::string& folder : folders) {
    const std::uint64_t most = Cgroup{{folder}, unified}.limit(kind);
    if (most == kNoLimit) continue;
    const char* file = kind == CgroupKind::pids ? "pids.current"
                       : unified                ? "memory.current"
                                                : "memory.usage_in_bytes";
    std::uint64_t used = number_in(folder, file);
    if (used == kNoLimit) used = 0;
    if (kind == CgroupKind::memory) used -= std::min(used, cached_in(folder, unified));
    least = std::min(least, most - std::min(most, used));
  }
  return least;
}

std::uint64_t Cgroup::memory_kills() const {
  std::string text = folders.empty()
                         ? ""
                         : read_text(fmt::format("{}/{}", folders.front(),
                                                 unified ? "memory.events" : "memory.oom_control"));
  if (!value_after(text, "oom_kill ")) text = read_text("/proc/vmstat");  // of the whole host
  const auto value = value_after(text, "oom_kill ");
  return value ? static_cast<std::uint64_t>(first_number(*value).value_or(0)) : 0;
}

}  // namespace tutti
