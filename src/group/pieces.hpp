// group/pieces.hpp - the caller's buffers as the engine wants them: pieces of memory.
//
// A side that is one block has a piece per buffer; a side with a block for each rank has exactly one
// piece per rank, whether the caller passed a buffer for each or one that is to be cut.
#pragma once

#include <span>
#include <vector>

#include "engine/scattered.hpp"
#include "tutti/collectives.hpp"
#include "tutti/shape.hpp"
#include "tutti/status.hpp"

namespace tutti::group {

using Pieces = std::vector<engine::Piece>;

// One side of a call, in the caller's words. `B` is Buffer or ConstBuffer.
template <class B>
struct GivenSide {
  const char* name;  // "input" or "output", for messages
  std::span<const B> buffers;
  Counts counts;  // empty: cut evenly
  Blocks blocks;
};

// Code::invalid_argument says what is wrong with it.
template <class B>
Status take_pieces(const GivenSide<B>& side, int ranks, Pieces& pieces);

std::size_t total_bytes(const Pieces& pieces);
bool are_even(const Pieces& pieces);
// The same memory, piece by piece, and some of it.
bool are_same(const Pieces& a, const Pieces& b);
bool overlap(const Pieces& a, const Pieces& b);

}  // namespace tutti::group
