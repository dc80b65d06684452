#include "checkpoint/stored_pieces.hpp"

#include <algorithm>

namespace tutti::checkpoint {
namespace {

using train::ElementRun;

// Both lists are by their place in the tensor.
void append_common(const std::vector<ElementRun>& stored, const std::vector<ElementRun>& wanted,
                   std::size_t piece, std::vector<PieceOverlap>& overlaps) {
  for (std::size_t i = 0, j = 0; i < stored.size() && j < wanted.size();) {
    const ElementRun& a = stored[i];
    const ElementRun& b = wanted[j];
    const std::size_t first = std::max(a.tensor, b.tensor);
    const std::size_t end = std::min(a.tensor + a.count, b.tensor + b.count);
    if (first < end)
      overlaps.push_back(
          {piece, a.box + (first - a.tensor), b.box + (first - b.tensor), end - first});
    if (a.tensor + a.count < b.tensor + b.count)
      ++i;
    else
      ++j;
  }
}

}  // namespace

std::vector<PieceOverlap> StoredPieces::overlaps(const train::TensorBox& box, std::size_t first,
                                                 std::size_t count) const {
  std::vector<PieceOverlap> overlaps;
  const std::vector<ElementRun> wanted = train::runs_of(box, first, count);
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    append_common(train::runs_of(pieces_[i].box, pieces_[i].first, pieces_[i].count), wanted, i,
                  overlaps);
  return overlaps;
}

Coverage coverage_of(std::vector<PieceOverlap> overlaps, std::size_t count) {
  std::sort(overlaps.begin(), overlaps.end(),
            [](const PieceOverlap& a, const PieceOverlap& b) { return a.into < b.into; });
  std::size_t covered = 0;
  for (const PieceOverlap& overlap : overlaps) {
    if (overlap.into > covered) return Coverage::missing;
    if (overlap.into < covered) return Coverage::twice;
    covered += overlap.count;
  }
  return covered == count ? Coverage::complete : Coverage::missing;
}

}  // namespace tutti::checkpoint
