#include "engine/stage_plan.hpp"

#include <algorithm>

#include "engine/layout.hpp"

namespace tutti::engine {
namespace {

using schedule::kLocal;

// The shortest piece: its copy takes as long as a few waits.
constexpr std::size_t kShortestPiece = 16 * 1024;

constexpr std::size_t rounded_down(std::size_t bytes) { return bytes / 64 * 64; }
constexpr std::size_t rounded_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

std::size_t total_of(const std::vector<Piece>& pieces) {
  std::size_t total = 0;
  for (const Piece& piece : pieces) total += piece.bytes;
  return total;
}

// Turns the chunks of one plan into bytes.
class Binder {
 public:
  Binder(StagePlan& plan, const Launch& launch, const Stage& stage)
      : plan_(plan), launch_(launch), stage_(stage) {
    layout_.reset(plan.program.program, launch);
  }

  Move move_of(int peer, std::uint32_t slot, const Chunk& from, const Chunk& to) const {
    Move move;
    move.peer = peer;
    move.slot = slot;
    move.from_space = from.space;
    move.to_space = to.space;
    move.from = layout_.offset_of(from.space, from.index);
    move.to = layout_.offset_of(to.space, to.index);
    move.bytes = move.split =
        layout_.extent_bytes(extent_of(layout_.program(), to.space, to.index));
    return move;
  }

  void bind() {
    const StageProgram& program = plan_.program;
    for (auto* moves :
         {&plan_.shown, &plan_.copies, &plan_.takes, &plan_.gives, &plan_.second, &plan_.puts})
      moves->clear();
    plan_.sources.clear();
    for (std::uint32_t s = 0; s < program.shown.size(); ++s)
      plan_.shown.push_back(move_of(kLocal, s, program.shown[s], program.shown[s]));
    for (const LocalCopy& copy : program.copies)
      plan_.copies.push_back(move_of(kLocal, 0, copy.from, copy.to));
    const auto split = [](const Move& move, double givers_share) {
      return move.bytes -
             rounded_down(static_cast<std::size_t>(static_cast<double>(move.bytes) * givers_share));
    };
    for (const Take& take : program.takes) {
      plan_.takes.push_back(move_of(take.peer, take.slot, take.from, take.to));
      plan_.takes.back().split = split(plan_.takes.back(), take.givers_share);
    }
    for (const Take& take : program.second)
      plan_.second.push_back(move_of(take.peer, take.slot, take.from, take.to));
    // A giver does not have the side that it gives to, so the chunk's size is asked for where it
    // is.
    const auto give = [&](const Give& each) {
      Move move = move_of(each.peer, 0, each.from, each.from);
      move.to_space = each.to.space;
      move.to = layout_.offset_of(each.to.space, each.to.index);
      move.split = split(move, each.share);
      return move;
    };
    for (const Give& each : program.gives) plan_.gives.push_back(give(each));
    for (const Give& each : program.puts) plan_.puts.push_back(give(each));
    if (program.fold) {
      for (const StageFold::Source& source : program.fold->sources)
        plan_.sources.push_back(
            {move_of(source.peer, source.slot, source.from, program.fold->to), source.raw});
      plan_.fold = move_of(kLocal, 0, program.fold->to, program.fold->to);
    }
    choose_way();
  }

  void choose_way() {
    std::size_t widest = 0;
    std::size_t widest_padded = 0;
    std::size_t most = 1;
    plan_.longest = 0;
    for (const auto& extents : plan_.program.shown_extents) {
      std::size_t bytes = 0;
      std::size_t padded = 0;
      for (std::uint64_t extent : extents) {
        const std::size_t chunk = layout_.extent_bytes(extent);
        bytes += chunk;
        padded += rounded_up(chunk);
        plan_.longest = std::max(plan_.longest, chunk);
      }
      widest = std::max(widest, bytes);
      widest_padded = std::max(widest_padded, padded);
      most = std::max(most, extents.size());
    }
    plan_.widest = widest;
    plan_.may_read = may_read_memory();
    plan_.way = StagePlan::Way::meet;
    if (!plan_.program.two_phases && widest <= kLineBytes)
      plan_.way = StagePlan::Way::line;
    else if (!plan_.program.two_phases && widest_padded <= kOneShotBytes && !plan_.may_read)
      plan_.way = StagePlan::Way::window;
    const std::size_t most_bytes = rounded_down(kSlotBytes / most);
    // One rank copies in while the others copy out: that takes pieces. Where all do the same at the
    // same time, fewer pieces are fewer waits.
    const bool overlaps = plan_.program.lopsided && !stage_.crowded();
    const std::size_t wanted = overlaps ? plan_.longest / 4 : plan_.longest;
    plan_.piece = std::clamp<std::size_t>(rounded_up(wanted), std::min(kShortestPiece, most_bytes),
                                          most_bytes);
    set_packed();
  }

  // Where chunks lie in a line or a one-shot window: one after the other, in windows on cache
  // lines.
  void set_packed() {
    const auto place = [&](int rank, std::uint32_t slot) {
      const auto& extents = plan_.program.shown_extents[static_cast<std::size_t>(rank)];
      std::size_t at = 0;
      for (std::uint32_t s = 0; s < slot; ++s) {
        const std::size_t chunk = layout_.extent_bytes(extents[s]);
        at += plan_.way == StagePlan::Way::line ? chunk : rounded_up(chunk);
      }
      return at;
    };
    for (Move& move : plan_.shown) move.packed = place(stage_.rank(), move.slot);
    for (Move& move : plan_.takes) move.packed = place(move.peer, move.slot);
    for (StagePlan::Source& source : plan_.sources)
      if (source.move.peer != kLocal)
        source.move.packed = place(source.move.peer, source.move.slot);
  }

  bool may_read_memory() const {
    const ReadingRange range =
        reading_range(plan_.program.lopsided, plan_.program.readers, stage_.crowded());
    return stage_.can_read_memory() && !has_reduction(launch_.collective) &&
           plan_.longest >= range.from && plan_.longest <= range.up_to;
  }

 private:
  StagePlan& plan_;
  const Launch& launch_;
  const Stage& stage_;
  Layout layout_;
};

}  // namespace

void bind(StagePlan& plan, const Launch& launch, const Stage& stage) {
  const std::size_t input_bytes = total_of(launch.input);
  const std::size_t output_bytes = total_of(launch.output);
  const bool same = plan.bound && plan.input_bytes == input_bytes &&
                    plan.output_bytes == output_bytes && plan.dtype == launch.dtype;
  if (same && launch.block_bytes.empty()) return;
  plan.bound = true;
  plan.input_bytes = input_bytes;
  plan.output_bytes = output_bytes;
  plan.dtype = launch.dtype;
  Binder(plan, launch, stage).bind();
}

}  // namespace tutti::engine
