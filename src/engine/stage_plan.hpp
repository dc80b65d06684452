// engine/stage_plan.hpp - a stage program together with the sizes that it was last run with: chunks
// turned into bytes, and the way that follows from the size, which all ranks know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/launch.hpp"
#include "engine/stage.hpp"
#include "engine/stage_program.hpp"

namespace tutti::engine {

// Bytes of the longest chunk between which the kernel's copy from another process beats two copies
// through a window. Where one rank has all the work (broadcast), windows win again sooner: then it
// copies in while the others copy out. Many readers of the same pages get in each other's way
// inside the kernel: 16 ranks took 407 µs for a broadcast of 256 KiB. Measured 2026-11-15, KVM
// guests with 2 and 16 cores (Sapphire Rapids): docs/performance.md.
struct ReadingRange {
  std::size_t from = 0;
  std::size_t up_to = 0;
};
constexpr ReadingRange reading_range(bool lopsided, std::uint32_t readers, bool crowded) {
  if (lopsided) return readers == 1 ? ReadingRange{4 << 10, 512 << 10} : ReadingRange{1, 0};
  if (readers == 1) return {std::size_t{crowded ? 16U : 8U} << 10, 4 << 20};
  return readers <= 3 ? ReadingRange{32 << 10, 2 << 20} : ReadingRange{1, 0};
}
// Bytes from which folding where the data lies, with one more meeting, beats a copy into the
// window; where meetings are dear it does not as long as the window suffices.
inline constexpr std::size_t kHopeFrom = 1024;

// A chunk's way, in bytes from the beginning of each side.
struct Move {
  int peer = 0;
  std::size_t packed = 0;  // in the peer's line or one-shot window
  std::uint32_t slot = 0;
  schedule::Space from_space = schedule::Space::input;
  schedule::Space to_space = schedule::Space::output;
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t bytes = 0;
  std::size_t split = 0;  // bytes before this are the taker's to move, the rest the giver's
};

// A program together with the sizes that it was last run with.
struct StagePlan {
  enum class Way : std::uint8_t { line, window, meet };
  struct Source {
    Move move;
    bool raw = false;
  };

  StageProgram program;
  // The program to take instead when all buffers can be reached by all: one that moves less, and
  // meets once more. Empty: the same.
  std::unique_ptr<StagePlan> to_share;

  bool bound = false;
  std::size_t input_bytes = 0;
  std::size_t output_bytes = 0;
  Dtype dtype = Dtype::u8;
  Way way = Way::meet;
  std::size_t longest = 0;  // chunk that is shown by any rank
  std::size_t widest = 0;   // bytes that any rank shows
  std::size_t piece = 0;    // bytes of a chunk that move at once
  bool may_read = false;    // the kernel's copy pays, if all buffers allow it
  std::vector<Move> shown, copies, takes, gives, second, puts;
  std::vector<Source> sources;
  Move fold;
};

// Binds the plan to the launch's sizes; nothing happens when they are those of the last time.
void bind(StagePlan& plan, const Launch& launch, const Stage& stage);

}  // namespace tutti::engine
