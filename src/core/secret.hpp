// core/secret.hpp - the job's secret: what may be one, how it reaches a process (by descriptor or by
// file, never by argv, environment or log), and that it is wiped where it was held.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/status.hpp"

namespace tutti {

inline constexpr std::size_t kSecretBytes = 32;
inline constexpr std::size_t kLeastSecretBytes = 16;
inline constexpr std::size_t kMaxSecretBytes = 4096;

// Overwrites what `text` holds and empties it.
void wipe(std::string& text) noexcept;

// Bytes that leave no copy of themselves behind.
class Secret {
 public:
  Secret() = default;
  template <std::convertible_to<std::string_view> Bytes>
  Secret(const Bytes& bytes) : bytes_(std::string_view(bytes)) {}
  Secret(std::string&& bytes) noexcept : bytes_(std::move(bytes)) { wipe(bytes); }
  Secret(const Secret& other) = default;
  Secret(Secret&& other) noexcept : bytes_(std::move(other.bytes_)) { wipe(other.bytes_); }
  Secret& operator=(Secret other) noexcept {
    bytes_.swap(other.bytes_);  // the old one is wiped with `other`
    return *this;
  }
  ~Secret() { wipe(bytes_); }

  bool empty() const noexcept { return bytes_.empty(); }
  operator std::string_view() const noexcept { return bytes_; }
  const std::string& text() const noexcept { return bytes_; }

 private:
  std::string bytes_;
};

// Code::invalid_argument for none, and for one so short that it could be guessed.
Status check_secret(std::string_view secret);

// A sealed memory file that holds `secret`. It can be read any number of times through every
// inherited copy of the descriptor, has no name and dies with its last holder. Close-on-exec is
// set; clear it in the child that is to inherit it.
Result<int> make_secret_descriptor(std::string_view secret);

// Reads from the start and leaves the descriptor open, for a program may ask twice, but no longer to
// be inherited by what it starts. Code::io when it is not such a file: it was closed, and another
// file got its number.
Result<Secret> read_secret_descriptor(int descriptor);

// The whole file. It must belong to this user and be closed to everybody else (mode 0600 or 0400);
// anything else is Code::invalid_argument that says what to do.
Result<Secret> read_secret_file(const std::string& path);

}  // namespace tutti
