// engine/scattered.hpp - memory in pieces, addressed as if it were one.
#pragma once

#include <cstddef>
#include <vector>

namespace tutti::engine {

struct Piece {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

class Scattered {
 public:
  void clear() {
    pieces_.clear();
    bytes_ = 0;
  }
  // Adds a piece at the end; one that continues the last is merged with it.
  void add(std::byte* data, std::size_t bytes) {
    if (bytes == 0) return;
    bytes_ += bytes;
    if (!pieces_.empty() && pieces_.back().data + pieces_.back().bytes == data)
      pieces_.back().bytes += bytes;
    else
      pieces_.push_back({data, bytes});
  }
  std::size_t bytes() const { return bytes_; }

  // From `position` to the end of the piece that it lies in. position < bytes().
  Piece at(std::size_t position) const {
    for (const Piece& piece : pieces_) {
      if (position < piece.bytes) return {piece.data + position, piece.bytes - position};
      position -= piece.bytes;
    }
    return {};
  }
  bool contiguous() const { return pieces_.size() <= 1; }

 private:
  std::vector<Piece> pieces_;
  std::size_t bytes_ = 0;
};

}  // namespace tutti::engine
