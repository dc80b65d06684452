// checkpoint/stored_pieces.hpp - where the elements lie that a rank needs of what others have stored.
//
// A piece is a range of elements of a box of a tensor (train/tensor_box.hpp), and so is what is wanted;
// boxes may be cut in any other way.
//
//   saved by 3 ranks    |  rank 0  |  rank 1  |  rank 2  |
//   wanted on 2         |    rank 0     |    rank 1      |      each takes the overlaps
//
// Pure: no files, no group.
#pragma once

#include <cstddef>
#include <vector>

#include "train/tensor_box.hpp"

namespace tutti::checkpoint {

struct StoredPiece {
  train::TensorBox box;
  std::size_t first = 0;  // of the box's elements
  std::size_t count = 0;
  std::size_t file = 0;
  std::size_t tensor = 0;  // index in that file's header
};

// Elements that lie one after another in a piece and where they are wanted.
struct PieceOverlap {
  std::size_t piece = 0;  // index
  std::size_t from = 0;   // in the piece
  std::size_t into = 0;   // from the first that is wanted
  std::size_t count = 0;
};

// All pieces of one kind of state of one tensor.
class StoredPieces {
 public:
  void add(StoredPiece piece) { pieces_.push_back(std::move(piece)); }
  const StoredPiece& operator[](std::size_t index) const { return pieces_[index]; }
  // Elements [first, first + count) of `box`, by piece and place in it.
  std::vector<PieceOverlap> overlaps(const train::TensorBox& box, std::size_t first,
                                     std::size_t count) const;

 private:
  std::vector<StoredPiece> pieces_;
};

// Whether each of `count` elements is there once.
enum class Coverage : std::uint8_t { complete, missing, twice };
Coverage coverage_of(std::vector<PieceOverlap> overlaps, std::size_t count);

}  // namespace tutti::checkpoint
