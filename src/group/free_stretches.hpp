// group/free_stretches.hpp - which stretches of a block are free: pieces are cut from it and put back.
//
// Arithmetic on offsets alone. A piece is cut from the smallest stretch that has room for it, of equal ones
// from the first, so that ranks that take and give back alike get the same offsets; free neighbours are one
// stretch. Whoever gives back needs no memory for it: that happens where nothing may fail.
//
// Thread-safety  none.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace tutti::group {

class FreeStretches {
 public:
  // Of `bytes` in all; both they and every piece's end and begin are multiples of `unit_bytes`.
  FreeStretches(std::size_t bytes, std::size_t unit_bytes);

  // Where the piece begins; absent: no free stretch is large enough. Not for zero bytes.
  std::optional<std::size_t> take(std::size_t bytes);
  // A piece, by where it begins.
  void give_back(std::size_t offset) noexcept;

  std::size_t bytes() const { return bytes_; }
  std::size_t bytes_free() const { return bytes_ - taken_bytes_; }
  std::size_t largest_free() const;
  std::size_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Stretch {
    std::size_t bytes = 0;
    bool free = true;
  };
  using Stretches = std::map<std::size_t, Stretch>;  // by offset; one begins where another ends
  void swallow_next(Stretches::iterator stretch) noexcept;

  std::size_t bytes_;
  std::size_t unit_bytes_;
  std::size_t taken_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
  Stretches stretches_;
};

}  // namespace tutti::group
