// core/free_stretches.hpp - which stretches of a block are free: pieces are cut from it and put back.
//
// Arithmetic on offsets alone. A piece is cut from the smallest stretch that has room for it, of equal ones
// from the first, so that ranks that take and give back alike get the same offsets; free neighbours are one
// stretch. Whoever gives back needs no memory for it: that happens where nothing may fail. Both take a time
// that grows with the logarithm of the number of stretches.
//
// Thread-safety  none.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace tutti {

class FreeStretches {
 public:
  struct Stretch {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  // Of `bytes` in all; both they and every piece's end and begin are multiples of `unit_bytes`.
  FreeStretches(std::size_t bytes, std::size_t unit_bytes);

  // Where the piece begins; absent: no free stretch is large enough. Not for zero bytes.
  std::optional<std::size_t> take(std::size_t bytes);
  // A piece, by where it begins.
  void give_back(std::size_t offset) noexcept;
  // The piece that holds this offset; absent: nobody has taken it.
  std::optional<Stretch> piece_around(std::size_t offset) const noexcept;

  std::size_t bytes() const { return bytes_; }
  std::size_t bytes_free() const { return bytes_ - taken_bytes_; }
  std::size_t largest_free() const { return free_.empty() ? 0 : free_.rbegin()->first; }
  std::size_t peak_bytes() const { return peak_bytes_; }
  // What is free, from the largest to the smallest, until `visit` says false.
  template <class Visit>
  void each_free(const Visit& visit) const {
    for (auto at = free_.rbegin(); at != free_.rend(); ++at)
      if (!visit(Stretch{at->second, at->first})) return;
  }

 private:
  using BySize = std::set<std::pair<std::size_t, std::size_t>>;  // bytes, offset
  struct Entry {
    std::size_t bytes = 0;
    bool free = true;
    BySize::node_type place = {};  // in free_, for when it is given back; empty while it is there
  };
  using Entries = std::map<std::size_t, Entry>;  // by offset; one begins where another ends
  void swallow_next(Entries::iterator entry) noexcept;
  void put_among_free(Entries::iterator entry) noexcept;
  void take_from_free(Entries::iterator entry) noexcept;

  std::size_t bytes_;
  std::size_t unit_bytes_;
  std::size_t taken_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
  Entries entries_;
  BySize free_;
};

}  // namespace tutti
