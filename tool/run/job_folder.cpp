#include "tool/run/job_folder.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "core/auth.hpp"
#include "core/words.hpp"

namespace tutti::tool {
namespace {

constexpr const char* kEnding = ".sock";

// A link, a stranger's folder or one that others may enter would let them listen in our name.
Status check_folder(const std::string& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0)
    return errno_status(fmt::format("cannot use {}", folder));
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 0077) != 0)
    return {Code::io, fmt::format("{} is not a folder that only this user may enter", folder)};
  return {};
}

}  // namespace

Result<JobEnd> make_job_end(const std::string& path) {
  JobEnd end;
  end.address.sun_family = AF_UNIX;
  if (path.size() >= sizeof end.address.sun_path)
    return Status(Code::io, fmt::format("{} is too long for a socket's name", path));
  path.copy(end.address.sun_path, path.size());
  end.socket = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!end.socket) return errno_status("cannot make a socket");
  return end;
}

std::string job_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return fmt::format("{}/tutti", runtime);
  return fmt::format("/tmp/tutti-{}", ::geteuid());
}

std::string new_job_socket_path() {
  return fmt::format("{}/{}-{}{}", job_folder(), ::getpid(), to_hex(random_bytes(4)), kEnding);
}

Status make_job_folder() {
  const std::string folder = job_folder();
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_status(fmt::format("cannot make {}", folder));
  return check_folder(folder);
}

Result<std::vector<std::string>> list_job_sockets() {
  const std::string folder = job_folder();
  std::vector<std::string> paths;
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) return paths;
  if (Status status = check_folder(folder); !status.ok()) return status;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.is_socket(error) && entry.path().extension() == kEnding)
      paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

void remove_job_socket(const std::string& path) noexcept {
  if (path.empty()) return;
  ::unlink(path.c_str());
  char folder[4096];
  const std::size_t end = path.rfind('/');
  if (end == std::string::npos || end >= sizeof folder) return;
  path.copy(folder, end);
  folder[end] = '\0';
  ::rmdir(folder);  // fails while other jobs are there, and so it should
}

}  // namespace tutti::tool
