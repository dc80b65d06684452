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
#include <vector>

#include "engine/launch.hpp"
#include "engine/stage.hpp"
#include "engine/stage_plan.hpp"
#include "reduce/fold.hpp"
#include "trace/tracer.hpp"

namespace tutti::engine {

class StageRun {
 public:
  explicit StageRun(Stage& stage);
  // Folds are noted there, as those of `channel`; null: nowhere.
  void trace_to(trace::Tracer* tracer, std::uint32_t channel) {
    tracer_ = tracer;
    channel_ = channel;
  }

  void begin(StagePlan& plan, const Launch& launch, std::uint64_t sequence, std::uint32_t print);
  // True if anything moved.
  bool step();
  bool done() const { return phase_ == Phase::done; }
  // A peer that has come with another call, or -1.
  int stranger() const { return stranger_; }
  // A peer's memory could not be reached, or the kernel refused to read it.
  Status failure() const { return failure_; }
  // Whether all buffers were where every rank can reach them, so that nothing was copied.
  bool was_direct() const { return was_direct_; }
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

  void pack(std::byte* to) const;
  void describe_places(Line& line);
  const StageProgram& program_to_share() const;
  static std::uint32_t needed_access(const StageProgram& program);

  bool meet();
  void fetch_ahead(int peer) const;
  void choose_phase();
  void choose_small_phase();
  void begin_direct();
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
  // Folds bytes [begin, end) of the own chunk; `found_` says where the peers' sources have `begin`.
  void fold_range(std::size_t begin, std::size_t end, std::byte* result);
  void fold_untraced(std::size_t begin, std::size_t end, std::byte* result);

  void reach_everybody();

  // The pipelined way: stage_pieces.cpp.
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
  bool was_direct_ = false;
  trace::Tracer* tracer_ = nullptr;
  std::uint32_t channel_ = 0;
  Status failure_;
  Side input_;
  Side output_;
  reduce::Stores stores_ = reduce::Stores::cached;
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
  std::vector<const std::byte*> found_;   // by source of the fold; a peer's only
  std::vector<reduce::Operand> operands_;
  std::vector<void*> destinations_;
};

}  // namespace tutti::engine
