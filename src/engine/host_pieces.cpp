// The carrier of whatever is too long for a line or a window and can be reached by nobody: slots, piece
// by piece. schedule/host/pipeline.hpp says who waits for whom.
#include <algorithm>

#include "engine/host_run.hpp"
#include "schedule/host/pipeline.hpp"

namespace tutti::engine {

using schedule::HostAction;
using schedule::kSlots;

bool HostRun::step_pieces() {
  const std::size_t phases = plan_.window().phases.size();
  const schedule::Pipeline pipeline(phases, plan_.way().pieces());
  while (turn_ < pipeline.turns()) {
    const std::size_t turn = turn_;
    const std::size_t phase = phase_;
    const bool has_work = pipeline.has(turn, phase);
    if (has_work) {
      const std::uint64_t needed = pipeline.needed(phase, turn - phase);
      if (needed > 0 && !all_reached(base_ + needed)) return false;
      do_piece(phase, turn - phase);
      memory_.set_mark(base_ + pipeline.mark_after(turn, phase));
    }
    if (++phase_ == phases) {
      phase_ = 0;
      ++turn_;
    }
    // One piece per step, so that whoever drives the group gets to its other works in between.
    if (has_work) return true;
  }
  // Marks grow by the same amount on all ranks, whatever each had to do.
  memory_.set_mark(base_ + pipeline.last_mark());
  progress_ = Progress::done;
  return true;
}

// Begins with the next rank, and not with rank 0: else all would look at the same line first.
bool HostRun::all_reached(std::uint64_t mark) const {
  for (int k = 1; k < memory_.size(); ++k) {
    int peer = memory_.rank() + k;
    if (peer >= memory_.size()) peer -= memory_.size();
    if (!memory_.reached(peer, mark)) return false;
  }
  return true;
}

// The moves of one phase, for one piece of their chunks. What is shown lies side by side in the slot,
// a piece's length for each chunk; a result has the slot to itself.
void HostRun::do_piece(std::size_t phase, std::size_t piece) {
  const std::size_t length = plan_.way().piece;
  const std::size_t slot = piece % kSlots;
  const bool of_results = phase == 2;
  const BoundPhase& work = plan_.window().phases[phase];
  for (const BoundMove& move : work.moves) {
    const std::size_t begin = piece * length * move.growth;
    const std::size_t end = std::min(move.bytes, begin + length * move.growth);
    if (begin >= end) continue;  // of chunks of different length the shorter ones are over
    switch (move.action) {
      case HostAction::show:
        copy_in(memory_.own().pieces[slot] + move.slot * length, side(move.from_space),
                move.from + begin, end - begin);
        break;
      case HostAction::copy: copy_local(move, begin, end); break;
      case HostAction::take: {
        const RankMemory& theirs = memory_.of(move.peer);
        const std::byte* from =
            of_results ? theirs.results[slot] : theirs.pieces[slot] + move.slot * length;
        copy_out(side(move.to_space), move.to + begin, from, end - begin);
        break;
      }
      case HostAction::give: break;  // needs memory that is mapped
    }
  }
  if (!work.has_fold) return;
  const std::size_t begin = piece * length;
  fold_piece(work.fold, begin, std::min(work.fold.bytes, begin + length), slot);
}

void HostRun::fold_piece(const BoundFold& fold, std::size_t begin, std::size_t end,
                         std::size_t slot) {
  if (begin >= end) return;
  for (std::size_t o = 0; o < fold.operands.size(); ++o) {
    const BoundFold::Operand& operand = fold.operands[o];
    if (operand.peer != schedule::kLocal)
      found_[o] = memory_.of(operand.peer).pieces[slot] + operand.slot * plan_.way().piece;
  }
  fold_range(fold, begin, end, fold.keeps_result ? memory_.own().results[slot] : nullptr);
}

}  // namespace tutti::engine
