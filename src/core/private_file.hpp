// core/private_file.hpp - a file for its owner's eyes (mode 0600), under its name once it is whole.
//
// For files that nobody asked for at the moment they are written: dumps of the flight recorder. It
// never waits and follows nobody's hints: it is written beside, under a name that must be new, and
// renamed. A link or a pipe that somebody has put at either name is replaced, not followed.
//
// Async-signal-safe: no allocation, no lock, nothing thrown.
#pragma once

#include <limits.h>

namespace tutti {

class PrivateFile {
 public:
  // `path` in a folder that exists. On failure descriptor() is -1, and error() says why.
  explicit PrivateFile(const char* path) noexcept;
  // What was not finished is removed.
  ~PrivateFile();
  PrivateFile(const PrivateFile&) = delete;

  int descriptor() const noexcept { return descriptor_; }
  // Puts it under its name. False: it is not there, error() says why; what was there stays.
  // `error`: of a write that failed; then it is given up.
  bool finish(int error = 0) noexcept;
  int error() const noexcept { return error_; }

 private:
  void give_up(int error) noexcept;

  const char* path_;
  char beside_[PATH_MAX];
  int descriptor_ = -1;
  int error_ = 0;
};

}  // namespace tutti
