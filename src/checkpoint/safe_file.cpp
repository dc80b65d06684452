#include "checkpoint/safe_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace tutti::checkpoint {
namespace {

constexpr std::size_t kPiece = 1 << 20;
constexpr mode_t kMode = 0644;
constexpr const char* kOwnFiles = "/proc/self/fd";

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

std::string temporary_for(const std::string& path) {
  const std::size_t name = path.rfind('/') + 1;  // npos + 1 is 0
  return path.substr(0, name) + std::string(kTemporaryPrefix) + path.substr(name);
}

// Hands the contents of a file to `take`, piece by piece.
template <class Take>
Status read_pieces(const std::string& path, const Take& take) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) return file_trouble(path, "cannot be opened");
  std::vector<char> piece(kPiece);
  for (;;) {
    // bounded: a pipe is empty, a file has an end
    const ssize_t got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_trouble(path, "cannot be read");
    if (got == 0) return {};
    if (Status status = take(std::string_view(piece.data(), static_cast<std::size_t>(got)));
        !status.ok())
      return status;
  }
}

}  // namespace

Status file_trouble(const std::string& path, std::string_view what, const std::error_code& error) {
  return {Code::io, fmt::format("{}: {}: {}", path, what, error.message())};
}

Status file_trouble(const std::string& path, std::string_view what) {
  return file_trouble(path, what, {errno, std::generic_category()});
}

std::string sha256_of(std::string_view text) {
  train::Digest digest;
  digest.add(text.data(), text.size());
  return train::to_hex(digest.value());
}

Result<std::string> sha256_of_file(const std::string& path) {
  train::Digest digest;
  const Status status = read_pieces(path, [&](std::string_view piece) {
    digest.add(piece.data(), piece.size());
    return Status();
  });
  if (!status.ok()) return status;
  return train::to_hex(digest.value());
}

// ---- SafeFile

SafeFile::SafeFile(std::string path, int descriptor, bool is_named)
    : path_(std::move(path)),
      temporary_(temporary_for(path_)),
      is_named_(is_named),
      descriptor_(descriptor) {}

Result<SafeFile> SafeFile::create(std::string path) {
  // It gets its name through /proc: without that it must have one from the beginning.
  if (::access(kOwnFiles, X_OK) == 0) {
    const int nameless = ::open(folder_of(path).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, kMode);
    if (nameless >= 0) return SafeFile(std::move(path), nameless, false);
  }
  // bounded: O_NOFOLLOW, and it was removed before
  const int named = ::open(temporary_for(path).c_str(),
                           O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kMode);
  if (named < 0) return file_trouble(path, "cannot be created");
  return SafeFile(std::move(path), named, true);
}

SafeFile::~SafeFile() {
  if (descriptor_.get() >= 0 && is_named_) (void)::unlink(temporary_.c_str());
}

Status SafeFile::write(const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  for (std::size_t left = bytes; left > 0;) {
    // In pieces, so that what is hashed and written is still in the cache.
    // bounded: a regular file; the disk's time is the save's
    const ssize_t written = ::write(descriptor_.get(), at, std::min(left, kPiece));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return file_trouble(path_, "cannot be written");
    digest_.add(at, static_cast<std::size_t>(written));
    at += written;
    left -= static_cast<std::size_t>(written);
  }
  bytes_ += bytes;
  return {};
}

Status SafeFile::commit() {
  // bounded: as write
  if (::fsync(descriptor_.get()) != 0) return file_trouble(path_, "cannot be synced");
  if (Status status = give_name(); !status.ok()) return status;
  descriptor_ = Descriptor();
  return sync_folder(folder_of(path_));
}

Status SafeFile::give_name() {
  if (!is_named_) {
    const std::string nameless = fmt::format("{}/{}", kOwnFiles, descriptor_.get());
    const auto link_as = [&](const std::string& name) {
      return ::linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
    };
    if (link_as(path_)) return {};
    // A link replaces nothing, a rename does. An older temporary name is a killed run's.
    if (errno == EEXIST && ::unlink(temporary_.c_str()) != 0 && errno != ENOENT)
      return file_trouble(temporary_, "cannot be removed");
    is_named_ = link_as(temporary_);
    if (!is_named_) return file_trouble(path_, "cannot be given a name");
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return file_trouble(path_, "cannot be given its name");
  return {};
}

// ---- small files and folders

Result<std::string> read_bounded(const std::string& path, std::size_t most) {
  std::string text;
  const Status status = read_pieces(path, [&](std::string_view piece) {
    text += piece;
    return text.size() <= most
               ? Status()
               : Status(Code::corrupt, fmt::format("{}: has more than {} bytes", path, most));
  });
  if (!status.ok()) return status;
  return text;
}

Status write_text(const std::string& path, std::string_view text) {
  auto file = SafeFile::create(path);
  if (!file.ok()) return file.status();
  if (Status status = file->write(text.data(), text.size()); !status.ok()) return status;
  return file->commit();
}

Status sync_folder(const std::string& folder) {
  const Descriptor open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (open.get() < 0) return file_trouble(folder, "cannot be opened");
  // Some file systems cannot sync a folder and say EINVAL; then its names are as safe as they get.
  // bounded: as write
  if (::fsync(open.get()) != 0 && errno != EINVAL) return file_trouble(folder, "cannot be synced");
  return {};
}

}  // namespace tutti::checkpoint
