#include "core/secret.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tutti {
namespace {

Result<std::string> read_all(int descriptor, const std::string& what) {
  std::string bytes(kMaxSecretBytes + 1, '\0');
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got =
        ::pread(descriptor, bytes.data() + size, bytes.size() - size, static_cast<off_t>(size));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return Status(Code::io, fmt::format("cannot read {}: {}", what, std::strerror(errno)));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > kMaxSecretBytes)
    return Status(
        Code::invalid_argument,
        fmt::format("{} holds more than {} bytes; a secret is short", what, kMaxSecretBytes));
  bytes.resize(size);
  return bytes;
}

// Whether only its owner, this user, can read what `descriptor` names.
Status check_private(int descriptor, const std::string& path) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0)
    return {Code::io, fmt::format("cannot look at secret file {}: {}", path, std::strerror(errno))};
  if (!S_ISREG(info.st_mode))
    return {Code::invalid_argument, fmt::format("secret file {} is not a regular file", path)};
  if (info.st_uid != ::geteuid())
    return {Code::invalid_argument,
            fmt::format(
                "secret file {} belongs to user {}, not to this user ({}); make one of your own",
                path, info.st_uid, ::geteuid())};
  if ((info.st_mode & 077) != 0)
    return {Code::invalid_argument,
            fmt::format("secret file {} has mode {:04o}, so others can read it; run: chmod 600 {}",
                        path, info.st_mode & 07777, path)};
  return {};
}

}  // namespace

Result<int> make_secret_descriptor(const std::string& secret) {
  const int descriptor = ::memfd_create("tutti-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0)
    return Status(Code::io, fmt::format("memfd_create failed: {}", std::strerror(errno)));
  const ssize_t written = ::pwrite(descriptor, secret.data(), secret.size(), 0);
  const int seals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
  if (written != static_cast<ssize_t>(secret.size()) ||
      ::fcntl(descriptor, F_ADD_SEALS, seals) != 0) {
    const Status failure(Code::io,
                         fmt::format("cannot store the secret: {}", std::strerror(errno)));
    ::close(descriptor);
    return failure;
  }
  return descriptor;
}

Result<std::string> read_secret_descriptor(int descriptor) {
  return read_all(descriptor, fmt::format("the job's secret from descriptor {}", descriptor));
}

Result<std::string> read_secret_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    return Status(Code::invalid_argument,
                  fmt::format("cannot open secret file {}: {}", path, std::strerror(errno)));
  Status status = check_private(descriptor, path);
  Result<std::string> secret =
      status.ok() ? read_all(descriptor, "secret file " + path) : Result<std::string>(status);
  ::close(descriptor);
  if (secret.ok() && secret->size() < 16)
    return Status(Code::invalid_argument,
                  fmt::format("secret file {} holds {} bytes; 16 are the least, 32 random ones are "
                              "right: head -c 32 /dev/urandom > {}",
                              path, secret->size(), path));
  return secret;
}

}  // namespace tutti
