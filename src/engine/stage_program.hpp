// engine/stage_program.hpp - a schedule read for a stage: who reads which chunk of whom, in at most
// two phases.
//
// Found by pattern, never by name. A group's programs fit when every message is either
//   shown    a chunk as the caller passed it, read by peers in the first phase, or
//   a result what one fold has made of shown chunks, read by peers in the second,
// and nobody forwards anything. All `direct` schedules do, and others for few ranks. Messages turn
// into reads of the sender's memory: its window, or the buffer itself where that can be reached.
//
// Pure. The answer is the same on all ranks, in place or not; `unaliased` alone depends on the
// latter, so it travels with the arrival.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti::engine {

struct Chunk {
  schedule::Space space = schedule::Space::input;
  std::uint32_t index = 0;

  friend bool operator==(const Chunk&, const Chunk&) = default;
};

// A chunk of `peer`, found at place `slot` of its window, that comes to this rank.
struct Take {
  int peer = 0;
  std::uint32_t slot = 0;
  Chunk from;
  Chunk to;
  double givers_share = 0;  // the part of the work of moving it that is the peer's, if both can
};

// A chunk of this rank that `peer` wants at `to`; `share` is this rank's part of moving it.
struct Give {
  int peer = 0;
  Chunk from;
  Chunk to;
  double share = 0;
};

struct LocalCopy {
  Chunk from;
  Chunk to;
};

struct StageFold {
  struct Source {
    int peer = schedule::kLocal;
    std::uint32_t slot = 0;
    Chunk from;
    bool raw = false;
  };
  Chunk to;
  std::vector<Source> sources;
  bool finish = false;
};

struct StageProgram {
  schedule::Program program;  // this rank's
  std::vector<Chunk> shown;   // by slot
  std::vector<LocalCopy> copies;
  std::vector<Take> takes;  // of shown chunks
  std::vector<Give> gives;  // the other side of the peers' takes
  std::optional<StageFold> fold;
  std::vector<Take> second;   // takes of results
  std::vector<Give> puts;     // the own result, for each peer that takes it
  bool two_phases = false;    // on any rank
  bool lopsided = false;      // some rank sends more, or less, than it receives
  std::uint32_t readers = 0;  // the most that any chunk has
  bool unaliased = true;      // nothing shown is overwritten in the first phase
  // Of every rank: extent ids of what it shows.
  std::vector<std::vector<std::uint64_t>> shown_extents;
};

// `programs` of all ranks, each after fuse_folds. Empty when they do not fit.
std::optional<StageProgram> compile_for_stage(const std::vector<schedule::Program>& programs,
                                              int rank);

}  // namespace tutti::engine
