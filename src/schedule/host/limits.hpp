// schedule/host/limits.hpp - the sizes of what ranks of one host meet in. The engine lays out memory by
// them, the tuner costs by them, `tutti show` tells by them: there is no second copy.
//
// Measured 2026-11-15 on KVM guests with 2 and 16 cores (Sapphire Rapids): docs/performance.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::schedule {

// Larger groups go by messages: everybody looks at everybody's line.
inline constexpr int kMostHostRanks = 64;

// Of payload in a line, which carries a call's hash and number as well: 128 bytes are two cache
// lines, and processors fetch the second together with the first.
inline constexpr std::size_t kLineBytes = 112;
// Of a window that is filled once per call. There are two, used in turn by even and odd calls.
inline constexpr std::size_t kWindowBytes = 64 * 1024;
// Of a slot through which longer chunks go piece by piece, and how many pieces are under way.
inline constexpr std::size_t kSlotBytes = 128 * 1024;
inline constexpr std::size_t kSlots = 2;
// The shortest piece: its copy takes as long as a few waits.
inline constexpr std::size_t kShortestPiece = 16 * 1024;

// Bytes from which folding where the data lies, with one more meeting, beats a copy into the window;
// where meetings are dear it does not as long as the window suffices.
inline constexpr std::size_t kHopeFrom = 1024;

// Bytes of the longest chunk between which the kernel's copy from another process beats two copies
// through a window. Where one rank has all the work (broadcast), windows win again sooner: then it
// copies in while the others copy out. Many readers of the same pages get in each other's way inside
// the kernel: 16 ranks took 407 µs for a broadcast of 256 KiB.
struct ReadingRange {
  std::size_t from = 0;
  std::size_t up_to = 0;
};
constexpr ReadingRange reading_range(bool lopsided, std::uint32_t readers, bool crowded) {
  constexpr ReadingRange kNever{1, 0};
  if (lopsided) return readers == 1 ? ReadingRange{4 << 10, 512 << 10} : kNever;
  if (readers == 1) return {std::size_t{crowded ? 16U : 8U} << 10, 4 << 20};
  return readers <= 3 ? ReadingRange{32 << 10, 2 << 20} : kNever;
}

}  // namespace tutti::schedule
