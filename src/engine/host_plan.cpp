#include "engine/host_plan.hpp"

#include "engine/layout.hpp"

namespace tutti::engine {
namespace {

using schedule::Carrier;
using schedule::HostAction;
using schedule::HostFold;
using schedule::HostForm;
using schedule::HostMove;
using schedule::kLocal;
using schedule::Spot;

std::size_t total_of(const std::vector<Piece>& pieces) {
  std::size_t total = 0;
  for (const Piece& piece : pieces) total += piece.bytes;
  return total;
}

// Turns the chunks of one form into bytes.
class Binder {
 public:
  Binder(const HostForm& form, const Launch& launch, Carrier carrier)
      : form_(form), carrier_(carrier) {
    layout_.reset(form.frame, launch);
  }

  std::size_t bytes_of(std::uint64_t extent) const { return layout_.extent_bytes(extent); }

  void bind(BoundForm& bound) const {
    bound.form = &form_;
    bound.phases.resize(form_.phases.size());
    for (std::size_t p = 0; p < form_.phases.size(); ++p) {
      BoundPhase& phase = bound.phases[p];
      phase.moves.clear();
      for (const HostMove& move : form_.phases[p].moves) phase.moves.push_back(bound_move(move));
      phase.has_fold = form_.phases[p].fold.has_value();
      if (phase.has_fold) bind_fold(*form_.phases[p].fold, phase.fold);
    }
  }

 private:
  BoundMove bound_move(const HostMove& move) const {
    BoundMove bound;
    bound.action = move.action;
    bound.peer = move.peer;
    bound.from_space = move.from.space();
    bound.to_space = move.to.space();
    if (!move.from.is_slot()) bound.from = offset_of(move.from);
    if (!move.to.is_slot()) bound.to = offset_of(move.to);
    const Spot& slot = move.to.is_slot() ? move.to : move.from;
    if (slot.where == Spot::Where::window) {
      const int owner = move.peer == kLocal ? form_.frame.rank : move.peer;
      bound.slot = slot.index;
      bound.packed = packed_at(owner, slot.index);
    }
    // A chunk's size is asked for on the side that this rank has.
    const Spot& here = move.action == HostAction::take ? move.to : move.from;
    bound.growth = layout_.growth_of(here.space(), here.index);
    bound.bytes = layout_.chunk_bytes(here.space(), here.index);
    const auto givers = static_cast<double>(bound.bytes) * move.givers_share;
    bound.split = bound.bytes - schedule::down_to_line(static_cast<std::size_t>(givers));
    return bound;
  }

  void bind_fold(const HostFold& fold, BoundFold& bound) const {
    bound.to_space = fold.to.space();
    bound.to = offset_of(fold.to);
    bound.bytes = bytes_of(extent_of(form_.frame, fold.to.space(), fold.to.index));
    bound.finish = fold.finish;
    bound.balanced = fold.balanced;
    bound.keeps_result = fold.keeps_result;
    bound.operands.clear();
    for (const HostFold::Operand& operand : fold.operands) {
      BoundFold::Operand each;
      each.peer = operand.peer;
      each.raw = operand.raw;
      each.space = operand.from.space();
      if (operand.from.is_slot()) {
        each.slot = operand.from.index;
        each.packed = packed_at(operand.peer, operand.from.index);
      } else {
        each.from = offset_of(operand.from);
      }
      bound.operands.push_back(each);
    }
    bound.puts.clear();
    for (const HostFold::Put& put : fold.puts) bound.puts.push_back({put.peer, offset_of(put.to)});
  }

  // All ranks' sides are cut alike, so this rank's layout tells where a peer's chunk lies.
  std::size_t offset_of(const Spot& spot) const {
    return layout_.offset_of(spot.space(), spot.index);
  }

  // Where chunks lie in a line or a window: one after the other, in windows on cache lines.
  std::size_t packed_at(int rank, std::uint32_t slot) const {
    const auto& extents = form_.shown_extents[static_cast<std::size_t>(rank)];
    std::size_t at = 0;
    for (std::uint32_t s = 0; s < slot; ++s) {
      const std::size_t chunk = bytes_of(extents[s]);
      at += carrier_ == Carrier::line ? chunk : schedule::up_to_line(chunk);
    }
    return at;
  }

  const HostForm& form_;
  Carrier carrier_;
  ChunkLayout layout_;
};

}  // namespace

HostPlan::HostPlan(schedule::HostForms forms) : forms_(std::move(forms)) {
  window_.form = &forms_.window;
  mapped_.form = &forms_.mapped;
  if (forms_.mapped_source) mapped_source_.form = &*forms_.mapped_source;
  if (forms_.readable) readable_.form = &*forms_.readable;
}

void HostPlan::bind(const Launch& launch, const schedule::HostFacts& facts) {
  const std::size_t input_bytes = total_of(launch.input);
  const std::size_t output_bytes = total_of(launch.output);
  const bool same = version_ > 0 && input_bytes_ == input_bytes && output_bytes_ == output_bytes &&
                    dtype_ == launch.dtype && widens_ == launch.widens;
  // Parts of different sizes may add up to the same bytes.
  const bool even = launch.block_bytes.empty();
  if (same && even && even_) return;
  ++version_;
  even_ = even;
  input_bytes_ = input_bytes;
  output_bytes_ = output_bytes;
  dtype_ = launch.dtype;
  widens_ = launch.widens;
  const Binder binder(forms_.window, launch, Carrier::pieces);
  schedule::ShownSizes sizes =
      schedule::sizes_of(forms_.window, [&](std::uint64_t e) { return binder.bytes_of(e); });
  sizes.growth = launch.growth();
  way_ = schedule::way_of(forms_, sizes, facts);
  up_to_date(window_, launch);
}

const BoundForm& HostPlan::up_to_date(BoundForm& bound, const Launch& launch) {
  if (bound.version == version_) return bound;
  bound.version = version_;
  Binder(*bound.form, launch, way_.carrier).bind(bound);
  return bound;
}

}  // namespace tutti::engine
