#include "group/pieces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tutti::group {
namespace {

using engine::Piece;

template <class B>
Piece piece_of(const B& buffer) {
  return {static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(buffer.data))),
          buffer.bytes()};
}

// Evenly, or by the counts that the caller passed.
template <class B>
Status cut(const GivenSide<B>& side, std::size_t ranks, Pieces& pieces) {
  const Piece whole = piece_of(side.buffers[0]);
  const std::size_t count = side.buffers[0].count;
  if (side.counts.empty()) {
    if (count % ranks != 0)
      return {Code::invalid_argument,
              fmt::format("{} of {} elements cannot be cut evenly among {} ranks; use the v-form",
                          side.name, count, ranks)};
    for (std::size_t r = 0; r < ranks; ++r)
      pieces.push_back({whole.data + r * (whole.bytes / ranks), whole.bytes / ranks});
    return {};
  }
  if (side.counts.size() != ranks)
    return {Code::invalid_argument,
            fmt::format("{} counts for {} ranks", side.counts.size(), ranks)};
  const std::size_t element = size_of(side.buffers[0].dtype);
  std::size_t at = 0;
  for (const std::size_t each : side.counts) {
    if (each > count - at)
      return {Code::invalid_argument,
              fmt::format("{} counts add up to more than its {} elements", side.name, count)};
    pieces.push_back({whole.data + at * element, each * element});
    at += each;
  }
  return {};
}

}  // namespace

template <class B>
Status take_pieces(const GivenSide<B>& side, int ranks, Pieces& pieces) {
  const auto n = static_cast<std::size_t>(ranks);
  if (side.buffers.empty()) return {Code::invalid_argument, fmt::format("no {} buffer", side.name)};
  for (const B& buffer : side.buffers)
    if (buffer.data == nullptr && buffer.count != 0)
      return {Code::invalid_argument,
              fmt::format("{} is null but has {} elements", side.name, buffer.count)};
  const bool one_for_each = side.buffers.size() == n && n > 1;
  if (side.blocks != Blocks::each || one_for_each) {
    for (const B& buffer : side.buffers) pieces.push_back(piece_of(buffer));
    return {};
  }
  if (side.buffers.size() != 1)
    return {Code::invalid_argument, fmt::format("{} has {} buffers; pass one, or one per rank ({})",
                                                side.name, side.buffers.size(), n)};
  return cut(side, n, pieces);
}

template Status take_pieces(const GivenSide<Buffer>&, int, Pieces&);
template Status take_pieces(const GivenSide<ConstBuffer>&, int, Pieces&);

std::size_t total_bytes(const Pieces& pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), std::size_t{0},
                         [](std::size_t sum, const Piece& piece) { return sum + piece.bytes; });
}

bool are_even(const Pieces& pieces) {
  return std::all_of(pieces.begin(), pieces.end(),
                     [&](const Piece& piece) { return piece.bytes == pieces[0].bytes; });
}

bool are_same(const Pieces& a, const Pieces& b) {
  return a.size() == b.size() && total_bytes(a) != 0 &&
         std::equal(a.begin(), a.end(), b.begin(), [](const Piece& x, const Piece& y) {
           return x.data == y.data && x.bytes == y.bytes;
         });
}

bool overlap(const Pieces& a, const Pieces& b) {
  for (const Piece& x : a)
    for (const Piece& y : b)
      if (x.bytes != 0 && y.bytes != 0 && x.data < y.data + y.bytes && y.data < x.data + x.bytes)
        return true;
  return false;
}

}  // namespace tutti::group
