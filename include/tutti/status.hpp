// tutti/status.hpp - how a call says that it went well, or what happened, to whom, and what to do.
//
// A Status is one pointer: null means ok, and copying one shares the text. A Result<T> is a value
// or a Status. Neither is ever thrown across the library's border.
//
//   tutti::Status status = group->barrier();
//   if (!status.ok()) std::fputs(status.to_string().c_str(), stderr);
//
// Thread-safety  a Status is a value; copies may be read and destroyed in any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/cpp20.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

// What went wrong, in ten words. docs/errors.md says what each one means for the caller.
enum class Code : std::uint8_t {
  ok,
  invalid_argument,  // the caller's mistake; nothing was started
  mismatch,          // ranks called different things
  unsupported,       // this machine or build cannot do it
  timed_out,         // the deadline passed
  peer_lost,         // a rank died or left
  aborted,           // somebody ended the group on purpose
  io,                // the operating system said no
  out_of_memory,
  corrupt,   // bytes that cannot be what they claim
  internal,  // our own bug
};

std::string_view to_string(Code code) noexcept;

class [[nodiscard]] Status {
 public:
  // Who and where, when known: the rank that reports, the peer at fault, the collective's number.
  struct Where {
    int rank = -1;
    int peer = -1;
    std::uint64_t sequence = 0;
  };

  Status() noexcept = default;
  Status(Code code, std::string message);
  Status(Code code, std::string message, Where where);
  Status(const Status& other) noexcept;
  Status(Status&& other) noexcept : payload_(std::exchange(other.payload_, nullptr)) {}
  Status& operator=(Status other) noexcept {
    std::swap(payload_, other.payload_);
    return *this;
  }
  ~Status();

  bool ok() const noexcept { return payload_ == nullptr; }
  Code code() const noexcept;
  // The sentence for the user; empty when ok.
  const std::string& message() const noexcept;
  int rank() const noexcept;
  int peer() const noexcept;
  std::uint64_t sequence() const noexcept;

  // "mismatch: rank 2 called …", or "ok".
  std::string to_string() const;
  // The same failure with `context` and ": " put before its message; ok stays ok.
  Status annotate(std::string_view context) const;

 private:
  struct Payload;
  Payload* payload_ = nullptr;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status failure) : status_(std::move(failure)) {}

  bool ok() const noexcept { return value_.has_value(); }
  // ok when there is a value.
  const Status& status() const noexcept { return status_; }

  // Only when ok().
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace v1
}  // namespace tutti
