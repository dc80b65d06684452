// failure.hpp - a Status of tutti as the Python exception of its kind.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <utility>

#include "tutti/status.hpp"

namespace tutti_python {

// Throws what tutti.errors makes of it. The caller holds the interpreter's lock.
[[noreturn]] void raise(const tutti::Status& status);
[[noreturn]] void raise(tutti::Code code, const std::string& message);

inline void check(const tutti::Status& status) {
  if (!status.ok()) raise(status);
}

template <class T>
T unwrap(tutti::Result<T> result) {
  check(result.status());
  return *std::move(result);
}

// For CallOptions::interrupted: Python's own signal handlers run here, and may raise.
bool was_interrupted();
// Throws what such a handler raised, if one did.
void check_interrupted();

}  // namespace tutti_python
