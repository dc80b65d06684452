// engine/host_run.hpp - runs a collective by its host form, in memory that the ranks of a host share.
//
// Every rank publishes its line and waits for everybody's: that is the first meeting. What comes
// next follows from the sizes, which all ranks know, and from what all lines say.
//
//   carrier line      what a rank shows is in its line: phase 1, done
//   carrier window    it is in the window: phase 1, done. A rank whose buffers all can reach leaves the
//                     copy out; if all did, they go on as mapped, and if some did, those copy now
//   mapped            everybody's buffers are in symmetric memory: phase 1 where the data lies, meet,
//                     done. Nothing is copied
//   readable          as mapped, but the kernel copies
//   carrier pieces    anything else: all phases, piece by piece, through slots (host_pieces.cpp)
//
// Thread-safety  none: whoever holds the baton steps it.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/host_memory.hpp"
#include "engine/host_plan.hpp"
#include "engine/run.hpp"
#include "reduce/fold.hpp"
#include "trace/tracer.hpp"

namespace tutti::engine {

class HostRun final : public Run {
 public:
  HostRun(HostMemory& memory, schedule::HostForms forms);
  // Folds are noted there, as those of `channel`; null: nowhere.
  void trace_to(trace::Tracer* tracer, std::uint32_t channel) {
    tracer_ = tracer;
    channel_ = channel;
  }

  void begin(const Launch& launch, std::uint64_t sequence) override;
  bool step() override;
  bool done() const override { return progress_ == Progress::done; }
  std::vector<int> waiting_for() const override;
  void abandon() override;
  Status failure() const override { return failure_; }
  // Whether it stands still for good: a failure, told more cheaply.
  bool failed() const { return !failure_.ok(); }

  // Whether all buffers were where every rank can reach them, so that nothing was copied.
  bool was_mapped() const { return was_mapped_; }

 private:
  enum class Progress : std::uint8_t {
    arriving,   // until everybody's line is there
    repacking,  // until those who hoped in vain have filled their windows
    working,    // phase 1, where the data lies
    piecing,    // all phases, piece by piece
    departing,  // until everybody is done with everybody's memory
    done,
  };
  // A caller's memory: one piece, or several.
  struct Side {
    std::byte* base = nullptr;  // null: see `scattered`
    Scattered scattered;
    std::size_t bytes = 0;

    void set(const std::vector<Piece>& pieces);
    // Where byte `position` is; `run` becomes at most what lies there in one piece.
    std::byte* at(std::size_t position, std::size_t& run) const {
      if (base != nullptr) return base + position;
      const Piece piece = scattered.at(position);
      if (piece.bytes < run) run = piece.bytes;
      return piece.data;
    }
  };

  // Arriving.
  void fill_line(Line& line);
  void pack(std::byte* to) const;
  void describe_buffers(Line& line);
  bool meet();
  void fetch_ahead(int peer) const;
  void choose_form();
  void choose_after_window();
  void finish_packed();

  // Working where the data lies.
  // Which form runs when all ranks, or this one, have such access (host_memory.hpp).
  schedule::Reach reach_by(std::uint32_t access) const;
  void begin_reaching(schedule::Reach reach);
  void begin_work(const BoundForm& form);
  void find_buffers();
  BufferPlaces places_of(int peer) const;
  std::byte* reach(int peer, bool target, std::size_t bytes);
  bool step_work();
  void move_part(const BoundMove& move);
  void fold_part(const BoundFold& fold);
  bool read_part(const BoundMove& take, std::size_t end);
  void leave(std::uint64_t mark);
  void reach_mark(std::uint64_t mark);
  bool all_reached_mark();
  bool somebody_went_back() const;

  // Piece by piece.
  bool step_pieces();
  bool all_reached(std::uint64_t mark) const;
  void do_piece(std::size_t phase, std::size_t piece);
  void fold_piece(const BoundFold& fold, std::size_t begin, std::size_t end, std::size_t slot);

  Side& side(schedule::Space space) { return space == schedule::Space::input ? input_ : output_; }
  const Side& side(schedule::Space space) const {
    return space == schedule::Space::input ? input_ : output_;
  }
  const std::byte* packed_of(int peer) const;
  void copy_in(std::byte* to, const Side& from, std::size_t at, std::size_t bytes) const;
  void copy_out(const Side& to, std::size_t at, const std::byte* from, std::size_t bytes) const;
  void copy_local(const BoundMove& move, std::size_t begin, std::size_t end) const;
  // Folds bytes [begin, end) of the chunk; `found_` says where the peers' operands have `begin`. Into
  // `result` first, if there is one, and from there to the caller.
  void fold_range(const BoundFold& fold, std::size_t begin, std::size_t end, std::byte* result);
  void fold_untraced(const BoundFold& fold, std::size_t begin, std::size_t end, std::byte* result);

  HostMemory& memory_;
  HostPlan plan_;
  trace::Tracer* tracer_ = nullptr;
  std::uint32_t channel_ = 0;

  const Launch* launch_ = nullptr;
  std::uint64_t sequence_ = 0;
  std::uint64_t base_ = 0;  // mark at which this collective began
  Progress progress_ = Progress::done;
  bool was_mapped_ = false;
  Status failure_;
  Side input_;
  Side output_;
  std::size_t growth_ = 1;  // Launch::growth
  reduce::Stores stores_ = reduce::Stores::cached;
  int met_ = 0;               // how many others were seen, in turn
  std::uint32_t access_ = 0;  // what all allow
  std::uint32_t hopes_ = 0;   // what anybody does

  const BoundForm* working_ = nullptr;  // working: which form
  std::size_t job_ = 0;                 //   which move of it, or the fold behind them
  std::size_t at_ = 0;                  //   and how far that is
  std::vector<std::byte*> sources_;     // of each rank, as mapped here
  std::vector<std::byte*> targets_;
  std::vector<std::uint64_t> addresses_;  // of each rank, where the kernel reads
  std::uint64_t last_mark_ = 0;           // that everybody has to reach before anybody leaves
  std::size_t turn_ = 0;                  // piecing: which turn
  std::size_t phase_ = 0;                 //   and which phase of it

  std::vector<const std::byte*> found_;  // by operand of the fold; a peer's only
  std::vector<reduce::Operand> operands_;
  std::vector<void*> destinations_;
};

}  // namespace tutti::engine
