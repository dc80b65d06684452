#include "token_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace pretrain {

using tutti::Code;
using tutti::Status;

namespace {

Status unreadable(const std::string& path, const std::string& why) {
  return {Code::io, "--data-path " + path + " cannot be read: " + why};
}

// Thousands of small files may be more than what a process may have open unless it asks for more.
int open_to_read(const char* path) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  rlimit limit{};
  if (file >= 0 || errno != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return file;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return ::open(path, O_RDONLY | O_CLOEXEC);
}

}  // namespace

TokenFile::TokenFile(TokenFile&& other) noexcept { *this = std::move(other); }

TokenFile& TokenFile::operator=(TokenFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(size_, other.size_);
  return *this;
}

TokenFile::~TokenFile() {
  if (file_ >= 0) ::close(file_);
}

Status TokenFile::open(const std::string& path) {
  path_ = path;
  file_ = open_to_read(path.c_str());
  if (file_ < 0) return unreadable(path, std::strerror(errno));
  struct stat info {};
  if (::fstat(file_, &info) != 0 || !S_ISREG(info.st_mode))
    return unreadable(path, "it is no regular file");
  size_ = static_cast<std::uint64_t>(info.st_size);
  return {};
}

Status TokenFile::open_unnamed(const std::string& path) {
  path_ = path;
  const char* folder = std::getenv("TMPDIR");
  std::string name = std::string(folder != nullptr ? folder : "/tmp") + "/tokens.XXXXXX";
  file_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0)
    return unreadable(path, "it is kept in TMPDIR, and " + name + ": " + std::strerror(errno));
  ::unlink(name.c_str());
  return {};
}

Status TokenFile::append(const void* data, std::size_t bytes) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file_, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0)
      return unreadable(path_, std::string("its copy in TMPDIR: ") + std::strerror(errno));
    next += written;
    bytes -= static_cast<std::size_t>(written);
    size_ += static_cast<std::uint64_t>(written);
  }
  return {};
}

Status TokenFile::read(std::uint64_t offset, void* out, std::size_t bytes) const {
  auto* next = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(file_, next, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable(path_, std::strerror(errno));
    if (got == 0) {
      struct stat now {};
      ::fstat(file_, &now);
      return unreadable(path_, fmt::format("it was cut short while it was in use: it had {} bytes, "
                                           "and has {} now",
                                           size_, now.st_size));
    }
    next += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace pretrain
