#include "core/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "core/words.hpp"

namespace tutti {
namespace {

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status unwritable(const std::string& path, int error) {
  std::string why = error == EISDIR ? "it is a folder" : std::strerror(error);
  // What is missing of a name that may be new is its folder.
  if (error == ENOENT && !path.empty() && ::access(folder_of(path).c_str(), F_OK) != 0)
    why = "there is no folder " + folder_of(path);
  return {Code::io, fmt::format("{} cannot be written: {}", path.empty() ? "''" : path, why)};
}

// "/dev/stdout", "/dev/fd/3": the descriptor itself. Opened by its name, a file would be begun anew
// beside what is written to the descriptor.
std::optional<int> own_descriptor(std::string_view path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    const auto number = parse_integer(path.substr(folder.size()));
    if (number.ok() && *number >= 0 && *number <= INT_MAX) return static_cast<int>(*number);
  }
  return std::nullopt;
}

// Where a chain of links leads, though nothing need be there; nothing when it has no end.
std::optional<std::string> followed(std::string path) {
  constexpr int kMostLinks = 40;  // as the kernel has it
  for (int link = 0; link < kMostLinks; ++link) {
    char text[PATH_MAX];
    const ssize_t length = ::readlink(path.c_str(), text, sizeof text);
    if (length < 0) return path;
    std::string next(text, static_cast<std::size_t>(length));
    const std::size_t slash = path.rfind('/');
    if (!next.starts_with('/') && slash != std::string::npos)
      next.insert(0, path, 0, slash + 1);  // relative to the folder of the link
    path = std::move(next);
  }
  return std::nullopt;
}

// What a path stands for.
struct Place {
  std::string replaced;        // to be put in place by rename; empty: to be written through
  std::optional<mode_t> mode;  // of what is there
};

Result<Place> find_place(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    if (errno != ENOENT) return unwritable(path, errno);
    const auto target = followed(path);
    if (!target) return unwritable(path, ELOOP);
    if (target->empty() || target->ends_with('/')) return unwritable(path, ENOENT);
    return Place{*target, std::nullopt};
  }
  if (S_ISDIR(facts.st_mode)) return unwritable(path, EISDIR);
  if (::access(path.c_str(), W_OK) != 0) return unwritable(path, errno);
  Place place{"", facts.st_mode};
  char real[PATH_MAX];
  // A file that has several names, or belongs to somebody else, would not be the same one afterwards.
  if (facts.st_nlink > 1 || facts.st_uid != ::geteuid()) return place;
  // A regular file without a name is one that was deleted, or another process's descriptor.
  if (S_ISREG(facts.st_mode) && ::realpath(path.c_str(), real) != nullptr) place.replaced = real;
  return place;
}

// The new file, in the folder of the one that it will replace: without a name where the file system
// can do that, so that nothing is left of a process that is killed, else under `name`.
struct NewFile {
  Descriptor descriptor;  // empty, with errno: it cannot be made
  bool is_named = false;
};

NewFile make_file(const Place& place, const std::string& name) {
  const mode_t bits = place.mode.value_or(0666) & 07777;
  const std::string folder = folder_of(place.replaced);
  NewFile file{Descriptor(::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, bits))};
  if (!file.descriptor && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    file = {Descriptor(::open(name.c_str(), flags, bits)), true};  // bounded: a regular file
  }
  if (file.descriptor && place.mode) (void)::fchmod(file.descriptor.get(), bits);
  return file;
}

std::string beside(const Place& place) {
  return fmt::format("{}.{}.part", place.replaced, ::getpid());
}

// A folder in which no file can be made.
bool is_closed(int error) { return error == EACCES || error == EROFS; }

// A file that is mounted, or lies in a folder in which only its owner may rename, gets the contents.
bool put_in_place(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return true;
  if (errno != EBUSY && errno != EPERM && errno != EACCES) return false;
  std::error_code error;
  std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing, error);
  if (!error) ::unlink(from.c_str());
  errno = error.value();
  return !error;
}

bool give_name(int descriptor, const std::string& name) {
  ::unlink(name.c_str());  // of a process of the same number, long ago
  const std::string own = fmt::format("/proc/self/fd/{}", descriptor);
  return ::linkat(AT_FDCWD, own.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

}  // namespace

Status OutputFile::check(const std::string& path) {
  const auto refused = [&](int error) {
    return Status(Code::invalid_argument, unwritable(path, error).message());
  };
  if (const auto own = own_descriptor(path)) {
    const int flags = ::fcntl(*own, F_GETFL);
    if (flags < 0) return refused(errno);
    return (flags & O_ACCMODE) == O_RDONLY ? refused(EBADF) : Status();
  }
  const auto place = find_place(path);
  if (!place.ok()) return {Code::invalid_argument, place.status().message()};
  if (place->replaced.empty()) return {};
  const std::string name = beside(*place);
  const NewFile trial = make_file(*place, name);
  if (!trial.descriptor) return place->mode && is_closed(errno) ? Status() : refused(errno);
  if (trial.is_named) ::unlink(name.c_str());
  return {};
}

bool OutputFile::is_replaced(const std::string& path) {
  if (own_descriptor(path)) return false;
  const auto place = find_place(path);
  return place.ok() && !place->replaced.empty();
}

Result<OutputFile> OutputFile::open(const std::string& path) {
  OutputFile file(path);
  if (const auto own = own_descriptor(path)) {
    file.descriptor_.reset(::fcntl(*own, F_DUPFD_CLOEXEC, 3));
    if (!file.descriptor_) return file.failed(errno);
    return file;
  }
  const auto place = find_place(path);
  if (!place.ok()) return place.status();
  if (!place->replaced.empty()) {
    file.replaced_ = place->replaced;
    file.beside_ = beside(*place);
    NewFile made = make_file(*place, file.beside_);
    file.is_named_ = made.is_named;
    file.descriptor_ = std::move(made.descriptor);
    if (file.descriptor_) return file;
    // A file that may be written in a folder that may not is written where it lies.
    if (!place->mode || !is_closed(errno)) return file.failed(errno);
    file.replaced_.clear();
    file.is_named_ = false;
  }
  const int cut = S_ISREG(*place->mode) ? O_TRUNC : 0;
  // bounded: by the reader that the user has named
  file.descriptor_.reset(::open(path.c_str(), O_WRONLY | O_CLOEXEC | cut));
  if (!file.descriptor_) return file.failed(errno);
  return file;
}

OutputFile::~OutputFile() {
  if (descriptor_ && is_named_) ::unlink(beside_.c_str());
}

Status OutputFile::failed(int error) const { return unwritable(path_, error); }

Status OutputFile::write(std::string_view text) {
  while (!text.empty()) {
    // bounded: as open
    const ssize_t put = ::write(descriptor_.get(), text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return failed(errno);
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

Status OutputFile::finish() {
  bool done = replaced_.empty() || is_named_ || give_name(descriptor_.get(), beside_);
  int error = errno;
  // Some file systems say only at the end that there is no room.
  if (::close(descriptor_.release()) != 0 && done) {
    done = false;
    error = errno;
  }
  if (done && (replaced_.empty() || put_in_place(beside_, replaced_))) return {};
  if (done) error = errno;
  if (!replaced_.empty()) ::unlink(beside_.c_str());
  return failed(error);
}

Status write_file(const std::string& path, std::string_view text) {
  auto file = OutputFile::open(path);
  if (!file.ok()) return file.status();
  if (Status status = file->write(text); !status.ok()) return status;
  return file->finish();
}

}  // namespace tutti
