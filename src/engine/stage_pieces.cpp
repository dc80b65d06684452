// The pipelined way of a stage: piece by piece through the windows.
//
//   turn      0      1       2       3    …          With A actions a turn, action a of turn t
//   in       p0     p1      p2      p3               leaves the mark base + t·A + a + 1. Everybody
//   work            p0      p1      p2               waits only for marks of earlier actions, so
//   out                     p0      p1               nobody waits in a circle.
#include <algorithm>

#include "engine/stage_run.hpp"

namespace tutti::engine {

bool StageRun::step_pieces() {
  const int actions = plan_->program.two_phases ? 3 : 2;
  const std::size_t count =
      plan_->longest == 0 ? 0 : (plan_->longest + plan_->piece - 1) / plan_->piece;
  const std::size_t turns = count + static_cast<std::size_t>(actions) - 1;
  bool moved = false;
  while (time_ < turns) {
    const auto lag = static_cast<std::size_t>(action_);
    if (time_ >= lag && time_ - lag < count) {
      if (!may_begin(action_, time_ - lag)) return moved;
      act(action_, time_ - lag);
      stage_.set_mark(base_ + time_ * static_cast<std::size_t>(actions) + lag + 1);
      moved = true;
    }
    if (++action_ == actions) {
      action_ = 0;
      ++time_;
    }
    if (moved) return true;
  }
  stage_.set_mark(base_ + turns * static_cast<std::size_t>(actions));
  phase_ = Phase::done;
  return true;
}

bool StageRun::all_reached(std::uint64_t mark) const {
  for (int k = 1; k < stage_.size(); ++k) {
    int peer = stage_.rank() + k;
    if (peer >= stage_.size()) peer -= stage_.size();
    if (!stage_.reached(peer, mark)) return false;
  }
  return true;
}

bool StageRun::may_begin(int action, std::size_t piece) const {
  const std::size_t actions = plan_->program.two_phases ? 3 : 2;
  switch (action) {
    case 0:  // the slot is free: everybody has worked on what was in it
      return piece < kPipeSlots || all_reached(base_ + (piece - kPipeSlots + 1) * actions + 2);
    case 1:  // everybody's piece is there, and the slot for the result is free
      if (actions == 3 && piece >= kPipeSlots)
        return all_reached(base_ + (piece - kPipeSlots + 2) * actions + 3);
      return all_reached(base_ + piece * actions + 1);
    default:  // everybody's result is there
      return all_reached(base_ + (piece + 1) * actions + 2);
  }
}

void StageRun::act(int action, std::size_t piece) {
  switch (action) {
    case 0: return piece_in(piece);
    case 1: return piece_work(piece);
    default: return piece_out(piece);
  }
}

void StageRun::piece_in(std::size_t piece) {
  std::byte* slot = stage_.own().pieces[piece % kPipeSlots];
  const std::size_t begin = piece * plan_->piece;
  for (const Move& move : plan_->shown) {
    const std::size_t end = std::min(move.bytes, begin + plan_->piece);
    if (begin < end)
      copy_in(slot + move.slot * plan_->piece, side(move.from_space), move.from + begin,
              end - begin);
  }
  for (const Move& copy : plan_->copies)
    copy_local(copy, std::min(copy.bytes, begin), std::min(copy.bytes, begin + plan_->piece));
}

void StageRun::piece_work(std::size_t piece) {
  const std::size_t begin = piece * plan_->piece;
  const auto of = [&](const Move& move) {
    return stage_.of(move.peer).pieces[piece % kPipeSlots] + move.slot * plan_->piece;
  };
  for (const Move& take : plan_->takes) {
    const std::size_t end = std::min(take.bytes, begin + plan_->piece);
    if (begin < end) copy_out(side(take.to_space), take.to + begin, of(take), end - begin);
  }
  if (!plan_->program.fold) return;
  const std::size_t end = std::min(plan_->fold.bytes, begin + plan_->piece);
  std::byte* result =
      plan_->program.two_phases ? stage_.own().results[piece % kPipeSlots] : nullptr;
  for (std::size_t s = 0; s < plan_->sources.size(); ++s)
    if (plan_->sources[s].move.peer != schedule::kLocal) found_[s] = of(plan_->sources[s].move);
  if (begin < end) fold_range(begin, end, result);
}

void StageRun::piece_out(std::size_t piece) {
  const std::size_t begin = piece * plan_->piece;
  for (const Move& take : plan_->second) {
    const std::size_t end = std::min(take.bytes, begin + plan_->piece);
    if (begin < end)
      copy_out(side(take.to_space), take.to + begin,
               stage_.of(take.peer).results[piece % kPipeSlots], end - begin);
  }
}

}  // namespace tutti::engine
