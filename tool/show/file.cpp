// Writing what was drawn.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "core/sockets.hpp"
#include "tool/show/show.hpp"

namespace tutti::tool {

Status write_whole(const std::string& path, const std::string& text) {
  const std::filesystem::path target(path);
  const std::filesystem::path folder =
      target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    return {Code::invalid_argument,
            fmt::format("cannot write {}: there is no folder {}", path, folder.string())};
  if (std::filesystem::is_directory(target, error))
    return {Code::invalid_argument, fmt::format("cannot write {}: it is a folder", path)};
  // Pipes and devices are written as they are; beside a file a new one grows, and takes its place.
  const bool special =
      std::filesystem::exists(target, error) && !std::filesystem::is_regular_file(target, error);
  const std::string beside = special ? path : fmt::format("{}.{}.part", path, ::getpid());
  const int flags = O_WRONLY | O_CLOEXEC | (special ? 0 : O_CREAT | O_TRUNC);
  Descriptor file(::open(beside.c_str(), flags, 0666));
  if (!file) return errno_status(fmt::format("cannot write {}", path));
  Status status = write_fully(file.get(), text.data(), text.size(), Nanoseconds::max());
  if (special) return status;
  if (status.ok() && ::rename(beside.c_str(), path.c_str()) != 0)
    status = errno_status(fmt::format("cannot write {}", path));
  if (!status.ok()) ::unlink(beside.c_str());
  return status;
}

}  // namespace tutti::tool
