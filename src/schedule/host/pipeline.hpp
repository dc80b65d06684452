// schedule/host/pipeline.hpp - long chunks go through the phases of a host form piece by piece: who
// waits for whom then. Arithmetic only.
//
//   turn      0      1       2       3    …      In turn t a rank does phase f with piece t - f, one
//   phase 0  p0     p1      p2      p3           phase after the other, and says so with its mark,
//   phase 1         p0      p1      p2           which only ever grows. Everybody waits for marks of
//   phase 2                 p0      p1           earlier actions only, so nobody waits in a circle.
//
// A phase needs the phase before it of the same piece from everybody. A phase that fills a slot (all
// but the last do) needs the slot: everybody has read what was in it, kSlots pieces ago.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "schedule/host/limits.hpp"

namespace tutti::schedule {

class Pipeline {
 public:
  Pipeline(std::size_t phases, std::size_t pieces) : phases_(phases), pieces_(pieces) {}

  std::size_t turns() const { return pieces_ + phases_ - 1; }
  // Whether there is anything to do for `phase` in `turn`, and with which piece.
  bool has(std::size_t turn, std::size_t phase) const {
    return turn >= phase && turn - phase < pieces_;
  }
  // Marks count from 0 at the beginning of the collective.
  std::uint64_t mark_after(std::size_t turn, std::size_t phase) const {
    return turn * phases_ + phase + 1;
  }
  std::uint64_t last_mark() const { return turns() * phases_; }
  // What all others must have reached before a rank begins `phase` of `piece`; 0: nothing.
  std::uint64_t needed(std::size_t phase, std::size_t piece) const {
    std::uint64_t mark = phase > 0 ? mark_after(piece + phase - 1, phase - 1) : 0;
    const bool fills = phase + 1 < phases_;
    if (fills && piece >= kSlots)
      mark = std::max(mark, mark_after(piece - kSlots + phase + 1, phase + 1));
    return mark;
  }

 private:
  std::size_t phases_;
  std::size_t pieces_;
};

}  // namespace tutti::schedule
