// cuda/kernels/copy.hpp - the copies of a launch, and the fold of one operand that is a copy.
//
// All copies together are one list of tiles, which blocks take in turns: a long copy and many short ones
// are shared alike. A copy moves by the widest words, of 16, 8, 4, 2 or 1 bytes, that its two ends allow;
// bytes before the first such word and after the last go singly, with its first tile.
#pragma once

#include "cuda/kernels/fold.hpp"

namespace tutti::cuda::kernels {

inline constexpr int kCopyUnroll = 4;

// ---- one tile

template <class Word>
TUTTI_DEVICE void copy_words(std::uint64_t to, std::uint64_t from, std::uint64_t begin,
                             std::uint64_t words, const Worker& worker) {
  constexpr std::uint64_t kBytes = sizeof(Word);
  const std::uint64_t at = begin + worker.index;
  if (begin + kCopyUnroll * worker.count <= words) {
    Word held[kCopyUnroll];
    TUTTI_UNROLL
    for (int u = 0; u < kCopyUnroll; ++u)
      held[u] = load<Word>(from + (at + u * worker.count) * kBytes);
    TUTTI_UNROLL
    for (int u = 0; u < kCopyUnroll; ++u) store(to + (at + u * worker.count) * kBytes, held[u]);
  } else {
    TUTTI_ROLLED
    for (std::uint64_t v = at; v < words; v += worker.count)
      store(to + v * kBytes, load<Word>(from + v * kBytes));
  }
}

// A copy as it is cut: `head` bytes, `words` of 1, 2, 4, 8 or 16 bytes, the rest.
struct CopyCut {
  std::uint64_t from, to, bytes;
  std::uint64_t head, words;
  int shift;  // of a word's size

  TUTTI_DEVICE CopyCut(std::uint64_t from_, std::uint64_t to_, std::uint64_t bytes_)
      : from(from_), to(to_), bytes(bytes_) {
    const std::uint64_t unlike = from ^ to;
    shift = unlike & 1 ? 0 : unlike & 2 ? 1 : unlike & 4 ? 2 : unlike & 8 ? 3 : 4;
    const std::uint64_t up = -to & ((std::uint64_t{1} << shift) - 1);
    head = up < bytes ? up : bytes;
    words = (bytes - head) >> shift;
  }
  TUTTI_DEVICE std::uint64_t tiles(const Worker& worker) const {
    const auto tile = static_cast<std::uint64_t>(kCopyUnroll) * worker.count;
    if (bytes == 0) return 0;
    return words == 0 ? 1 : (words + tile - 1) / tile;
  }
  TUTTI_DEVICE void ends(const Worker& worker) const {
    const std::uint64_t body = words << shift;
    TUTTI_ROLLED
    for (std::uint64_t i = worker.index; i + body < bytes; i += worker.count) {
      const std::uint64_t at = i < head ? i : i + body;
      store(to + at, load<std::uint8_t>(from + at));
    }
  }
  TUTTI_DEVICE void tile(std::uint64_t index, const Worker& worker) const {
    const std::uint64_t begin = index * kCopyUnroll * worker.count;
    if (index == 0) ends(worker);
    switch (shift) {
      case 4: return copy_words<Quad>(to + head, from + head, begin, words, worker);
      case 3: return copy_words<std::uint64_t>(to + head, from + head, begin, words, worker);
      case 2: return copy_words<std::uint32_t>(to + head, from + head, begin, words, worker);
      case 1: return copy_words<std::uint16_t>(to + head, from + head, begin, words, worker);
      default: return copy_words<std::uint8_t>(to + head, from + head, begin, words, worker);
    }
  }
};

// ---- all of them

TUTTI_DEVICE void run_copies(const Phase& phase, const Shared& shared, const Worker& worker) {
  std::uint64_t mine = worker.block;  // the next tile of this block, counted from copy i's first
  TUTTI_ROLLED
  for (int i = 0; i < phase.copy_count; ++i) {
    const CopyCut cut(shared.sources[i], phase.copies[i].to, phase.copies[i].bytes);
    const std::uint64_t tiles = cut.tiles(worker);
    TUTTI_ROLLED
    for (; mine < tiles; mine += worker.blocks) cut.tile(mine, worker);
    mine -= tiles;
  }
}

// ---- the fold that copies: read once, written to every target but those that are 0

TUTTI_DEVICE void spread_vectors(const Fold& fold, const Shared& shared, std::uint64_t at,
                                 std::uint64_t apart) {
  Quad held[kCopyUnroll];
  const std::uint64_t from = shared.operands[0] + at;
  TUTTI_UNROLL
  for (int u = 0; u < kCopyUnroll; ++u) held[u] = load<Quad>(from + u * apart);
  TUTTI_ROLLED
  for (int t = 0; t < fold.target_count; ++t) {
    if (shared.targets[t] == 0) continue;
    const std::uint64_t to = shared.targets[t] + at;
    TUTTI_UNROLL
    for (int u = 0; u < kCopyUnroll; ++u) store(to + u * apart, held[u]);
  }
}

template <class Word>
TUTTI_DEVICE void spread_word(const Fold& fold, const Shared& shared, std::uint64_t at) {
  const Word word = load<Word>(shared.operands[0] + at);
  TUTTI_ROLLED
  for (int t = 0; t < fold.target_count; ++t)
    if (shared.targets[t] != 0) store(shared.targets[t] + at, word);
}

// By tiles, as folds go (fold.hpp).
TUTTI_DEVICE void spread(const Fold& fold, const Shared& shared, const Cut& cut,
                         const Worker& worker) {
  const auto width = static_cast<std::uint64_t>(worker.count);
  const auto block = static_cast<std::uint64_t>(worker.block);
  const auto blocks = static_cast<std::uint64_t>(worker.blocks);
  const std::uint64_t tile = width * kCopyUnroll;
  const std::uint64_t tiles = cut.vectors / tile;
  TUTTI_ROLLED
  for (std::uint64_t t = block; t < tiles; t += blocks)
    spread_vectors(fold, shared, cut.head + (t * tile + worker.index) * sizeof(Quad),
                   width * sizeof(Quad));
  const std::uint64_t first = block * width + worker.index;
  TUTTI_ROLLED
  for (std::uint64_t v = tiles * tile + first; v < cut.vectors; v += blocks * width)
    spread_word<Quad>(fold, shared, cut.head + v * sizeof(Quad));
  const std::uint64_t body = cut.vectors * sizeof(Quad);
  TUTTI_ROLLED
  for (std::uint64_t i = first; i + body < fold.bytes; i += blocks * width)
    spread_word<std::uint8_t>(fold, shared, i < cut.head ? i : i + body);
}

// Where the places do not lie alike within 16 bytes, one copy after the other.
TUTTI_DEVICE void copy_fold(const Fold& fold, const Shared& shared, const Cut& cut, bool alike,
                            const Worker& worker) {
  if (alike) return spread(fold, shared, cut, worker);
  TUTTI_ROLLED
  for (int t = 0; t < fold.target_count; ++t) {
    if (shared.targets[t] == 0) continue;
    const CopyCut copy(shared.operands[0], shared.targets[t], fold.bytes);
    const std::uint64_t tiles = copy.tiles(worker);
    TUTTI_ROLLED
    for (std::uint64_t i = worker.block; i < tiles; i += worker.blocks) copy.tile(i, worker);
  }
}

}  // namespace tutti::cuda::kernels
