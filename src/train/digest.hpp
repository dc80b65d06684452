// train/digest.hpp - SHA-256, fed piece by piece.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tutti::train {

class Digest {
 public:
  using Value = std::array<std::uint8_t, 32>;

  Digest();
  void add(const void* data, std::size_t bytes);
  // With its length before it, so that neighbours cannot run together.
  void add_text(std::string_view text);
  void add_number(std::int64_t number);
  // Ends it.
  Value value();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

std::string to_hex(const Digest::Value& value);

}  // namespace tutti::train
