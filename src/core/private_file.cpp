#include "core/private_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace tutti {
namespace {

// A letter for each four bits of the object's address: a dump that a signal handler writes while
// another one is under way gets a name of its own.
constexpr std::size_t kDigits = 2 * sizeof(std::uintptr_t);
void put_digits(char* to, std::uintptr_t number) noexcept {
  for (std::size_t i = 0; i < kDigits; ++i, number >>= 4)
    to[i] = static_cast<char>('a' + (number & 15));
}

}  // namespace

PrivateFile::PrivateFile(const char* path) noexcept : path_(path) {
  const std::size_t length = std::strlen(path);
  if (length + 1 + kDigits >= sizeof beside_) {
    give_up(ENAMETOOLONG);
    return;
  }
  std::memcpy(beside_, path, length);
  beside_[length] = '.';
  put_digits(beside_ + length + 1, reinterpret_cast<std::uintptr_t>(this));
  beside_[length + 1 + kDigits] = '\0';
  ::unlink(beside_);  // nobody else of this process writes there
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  descriptor_ = ::open(beside_, kFlags, 0600);  // bounded: O_NONBLOCK, and it is new
  if (descriptor_ < 0) give_up(errno);
}

PrivateFile::~PrivateFile() {
  if (descriptor_ >= 0) give_up(ECANCELED);
}

void PrivateFile::give_up(int error) noexcept {
  error_ = error;
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  descriptor_ = -1;
  ::unlink(beside_);
}

bool PrivateFile::finish(int error) noexcept {
  if (descriptor_ < 0) return false;
  if (error != 0) {
    give_up(error);
    return false;
  }
  // Some file systems say only at the end that there is no room.
  const bool closed = ::close(descriptor_) == 0;
  descriptor_ = -1;
  if (closed && std::rename(beside_, path_) == 0) return true;
  error_ = errno;
  ::unlink(beside_);
  return false;
}

}  // namespace tutti
