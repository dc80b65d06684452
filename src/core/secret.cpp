#include "core/secret.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/files.hpp"

namespace tutti {
namespace {

constexpr int kSecretSeals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;

Result<Secret> read_all(int descriptor, const std::string& what) {
  Secret secret;
  char bytes[kMaxSecretBytes + 1];
  std::size_t size = 0;
  int error = 0;
  while (size < sizeof bytes) {
    const ssize_t got =
        ::pread(descriptor, bytes + size, sizeof bytes - size, static_cast<off_t>(size));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (error == 0 && size <= kMaxSecretBytes) secret = std::string_view(bytes, size);
  OPENSSL_cleanse(bytes, sizeof bytes);
  if (error != 0)
    return Status(Code::io, fmt::format("cannot read {}: {}", what, std::strerror(error)));
  if (size > kMaxSecretBytes)
    return Status(
        Code::invalid_argument,
        fmt::format("{} holds more than {} bytes; a secret is short", what, kMaxSecretBytes));
  if (Status status = check_secret(secret); !status.ok()) return status.annotate(what);
  return secret;
}

}  // namespace

void wipe(std::string& text) noexcept {
  OPENSSL_cleanse(text.data(), text.size());
  text.clear();
}

Status check_secret(std::string_view secret) {
  if (secret.size() >= kLeastSecretBytes) return {};
  return {
      Code::invalid_argument,
      fmt::format("{}; {} bytes are the least, {} random ones are right: head -c 32 "
                  "/dev/urandom > secret; chmod 600 secret",
                  secret.empty() ? std::string("there is no secret")
                                 : fmt::format("a secret of {} bytes is too short", secret.size()),
                  kLeastSecretBytes, kSecretBytes)};
}

Result<int> make_secret_descriptor(std::string_view secret) {
  const int descriptor = ::memfd_create("tutti-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0)
    return Status(Code::io, fmt::format("memfd_create failed: {}", std::strerror(errno)));
  const ssize_t written = ::pwrite(descriptor, secret.data(), secret.size(), 0);
  if (written != static_cast<ssize_t>(secret.size()) ||
      ::fcntl(descriptor, F_ADD_SEALS, kSecretSeals) != 0) {
    const Status failure(Code::io,
                         fmt::format("cannot store the secret: {}", std::strerror(errno)));
    ::close(descriptor);
    return failure;
  }
  return descriptor;
}

Result<Secret> read_secret_descriptor(int descriptor) {
  const std::string what = fmt::format("the job's secret from descriptor {}", descriptor);
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & kSecretSeals) != kSecretSeals)
    return Status(Code::io, fmt::format("cannot read {}: {}", what,
                                        seals < 0 && errno == EBADF
                                            ? "it is closed"
                                            : "it is another file, not the launcher's"));
  (void)::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  return read_all(descriptor, what);
}

Result<Secret> read_secret_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    return Status(Code::invalid_argument,
                  fmt::format("cannot open secret file {}: {}", path, std::strerror(errno)));
  Status status = check_private_file(descriptor, "secret file", path);
  Result<Secret> secret =
      status.ok() ? read_all(descriptor, "secret file " + path) : Result<Secret>(status);
  ::close(descriptor);
  return secret;
}

}  // namespace tutti
