// errors.hpp - a tutti::Status as a C++ exception, which module.cpp turns into tutti.errors' types.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "tutti/status.hpp"

namespace tutti_torch {

class Failure : public std::runtime_error {
 public:
  explicit Failure(const tutti::Status& status);
  const tutti::Status& status() const noexcept { return status_; }

 private:
  struct Explained {};
  Failure(tutti::Status status, Explained);

  tutti::Status status_;
};

inline void check(const tutti::Status& status) {
  if (!status.ok()) throw Failure(status);
}

template <class T>
T take(tutti::Result<T> result) {
  if (!result.ok()) throw Failure(result.status());
  return *std::move(result);
}

// The caller's mistake, found before anything was started: "all_reduce: …".
[[noreturn]] void refuse(const char* operation, const std::string& message);
[[noreturn]] void unsupported(const char* operation, const std::string& message);

}  // namespace tutti_torch
