// engine/stage_run.hpp - one collective on a stage, as a state machine that is stepped.
//
//   line     what a rank shows fits into its line: publish, meet, read everybody's
//   window   it fits into the one-shot window: copy in, publish, meet, read. A rank whose buffers
//            all can reach leaves the copy out; if all did, they go on as in `direct`
//   direct   everybody's buffers are in symmetric memory: meet, fold or read where the data is, put
//            results straight into everybody's output, and meet again: nothing is copied
//   reading  copies only, of memory that is not mapped: meet, let the kernel copy, meet again
//   pieces   anything else: meet, then piece by piece in(t) · work(t-1) · out(t-2), where `in`
//            copies what is shown into a slot of the window, `work` reads and folds the peers'
//            slots, `out` reads the results
//
// The first two follow from the size, which all ranks know; the rest from what all lines say.
//
// Buffers        as Plan. Thread-safety  none: whoever holds the baton steps it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/launch.hpp"
#include "engine/layout.hpp"
#include "engine/stage.hpp"
#include "engine/stage_program.hpp"
#include "reduce/fold.hpp"

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
  std::vector<Move> shown, copies, takes, gives, second, puts;
  std::vector<Source> sources;
  Move fold;
};

class StageRun {
 public:
  explicit StageRun(Stage& stage);

  void begin(StagePlan& plan, const Launch& launch, std::uint64_t sequence, std::uint32_t print);
  // True if anything moved.
  bool step();
  bool done() const { return phase_ == Phase::done; }
  // A peer that has come with another call, or -1.
  int stranger() const { return stranger_; }
  // The kernel refused to read a peer's memory.
  Status failure() const { return failure_; }
  // Whom it waits for.
  std::vector<int> waiting_for() const;

 private:
  enum class Phase : std::uint8_t { meeting, direct, reading, repacking, pieces, departing, done };
  // A caller's memory: one piece, or several.
  struct Side {
    std::byte* base = nullptr;  // null: see strand
    Strand strand;
    std::size_t bytes = 0;

    void set(const std::vector<Piece>& pieces);
    // Where byte `position` is; `run` becomes at most what lies there in one piece.
    std::byte* at(std::size_t position, std::size_t& run) const {
      if (base != nullptr) return base + position;
      const Piece piece = strand.at(position);
      if (piece.bytes < run) run = piece.bytes;
      return piece.data;
    }
  };

  void bind_if_new(StagePlan& plan);
  void bind(StagePlan& plan);
  Move move_of(int peer, std::uint32_t slot, const Chunk& from, const Chunk& to) const;
  void choose_way(StagePlan& plan) const;
  void set_packed(StagePlan& plan) const;
  void pack(std::byte* to) const;
  void describe_places(Line& line);
  const StageProgram& program_to_share() const;
  static std::uint32_t needed_access(const StageProgram& program);

  bool meet();
  void fetch_ahead(int peer) const;
  void choose_phase();
  void choose_small_phase();
  void begin_direct();
  bool may_read_memory(const StagePlan& plan) const;
  void finish_small();
  bool step_direct();
  bool step_reading();
  // The next part of a move that the kernel does. False: it refused.
  bool read_part(const Move& take);
  void leave(std::uint64_t mark);
  Status cannot_read(int peer) const;
  bool step_pieces();
  bool await_last_mark();
  bool somebody_went_back() const;

  Side& side(schedule::Space space) { return space == schedule::Space::input ? input_ : output_; }
  const Side& side(schedule::Space space) const {
    return space == schedule::Space::input ? input_ : output_;
  }
  const std::byte* packed_of(int peer) const;
  void copy_in(std::byte* to, const Side& from, std::size_t at, std::size_t bytes) const;
  void copy_out(const Side& to, std::size_t at, const std::byte* from, std::size_t bytes) const;
  void copy_local(const Move& move, std::size_t begin, std::size_t end) const;
  // Folds bytes [begin, end) of the own chunk. `from(s)` is where source s, a peer's, has `begin`.
  template <class From>
  void fold_range(std::size_t begin, std::size_t end, const From& from, std::byte* result);

  void reach_everybody();
  bool all_reached(std::uint64_t mark) const;
  bool may_begin(int action, std::size_t piece) const;
  void act(int action, std::size_t piece);
  void piece_in(std::size_t piece);
  void piece_work(std::size_t piece);
  void piece_out(std::size_t piece);

  Stage& stage_;
  StagePlan* plan_ = nullptr;
  const Launch* launch_ = nullptr;
  std::uint64_t sequence_ = 0;
  std::uint32_t print_ = 0;
  std::uint64_t base_ = 0;  // mark at which this collective began
  Phase phase_ = Phase::done;
  int stranger_ = -1;
  Status failure_;
  Side input_;
  Side output_;
  reduce::Stores stores_ = reduce::Stores::cached;
  Layout layout_;
  int met_ = 0;                      // how many others were seen, in turn
  std::uint32_t access_ = 0;         // what all allow
  std::uint32_t hopes_ = 0;          // what anybody does
  std::size_t job_ = 0;              // direct and reading: which move
  std::size_t at_ = 0;               //   and how far it is
  std::size_t time_ = 0;             // pieces: which turn
  int action_ = 0;                   //   and which action of it
  std::vector<std::byte*> sources_;  // of each rank, in direct
  std::vector<std::byte*> targets_;
  std::vector<std::uint64_t> addresses_;  // of each rank, in reading
  std::uint64_t last_mark_ = 0;           // that everybody has to reach before anybody leaves
  std::vector<reduce::Operand> operands_;
  std::vector<void*> destinations_;
};

}  // namespace tutti::engine
