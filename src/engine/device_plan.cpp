#include "engine/device_plan.hpp"

#include <algorithm>
#include <utility>

#include "cuda/reduction.hpp"

namespace tutti::engine {

using schedule::HostAction;
using schedule::HostFold;
using schedule::HostForm;
using schedule::HostMove;
using schedule::HostPhase;
using schedule::kLocal;
using schedule::Spot;

namespace {

// Staged chunks are counted from here until it is known where they lie: no address is as large.
constexpr std::uint64_t kStaged = std::uint64_t{1} << 60;
// Where one begins: a multiple of this, for the widest loads.
constexpr std::size_t kStagedAlignment = 256;

std::uint64_t device_address(const std::byte* data) {
  return reinterpret_cast<std::uintptr_t>(data);
}

}  // namespace

DevicePlan::DevicePlan(std::vector<HostForm> forms, int rank)
    : forms_(std::move(forms)),
      rank_(rank),
      own_(static_cast<std::size_t>(rank)),
      guests_(forms_.size()) {
  find_guests();
}

// What a peer's form says of this rank's chunks.
void DevicePlan::find_guests() {
  const auto note = [&](const Spot*& place, const Spot& spot) {
    if (place != nullptr && *place != spot) fits_ = false;
    place = &spot;
  };
  for (std::size_t peer = 0; peer < forms_.size(); ++peer) {
    if (static_cast<int>(peer) == rank_) continue;
    const HostPhase& phase = forms_[peer].phases[1];
    Guest& guest = guests_[peer];
    // Of what both would move a part of, the taker moves all on a device: it has no more to do than others.
    for (const HostMove& move : phase.moves) {
      pushes_ = pushes_ || is_pushed(move);
      if (move.peer != rank_) continue;
      if (move.action == HostAction::take) note(guest.reads, move.from);
      if (move.action == HostAction::give && is_pushed(move)) note(guest.writes, move.to);
    }
    if (!phase.fold) continue;
    for (const HostFold::Operand& operand : phase.fold->operands)
      if (operand.peer == rank_) note(guest.reads, operand.from);
    for (const HostFold::Put& put : phase.fold->puts)
      if (put.peer == rank_) note(guest.writes, put.to);
  }
  fits_ = fits_ && forms_.size() <= cuda::kMostRanks;
}

void DevicePlan::bind(const Launch& launch, const CanShow& can_show, DeviceWork& work) {
  launch_ = &launch;
  can_show_ = &can_show;
  work_ = &work;
  staged_in_.clear();
  staged_out_.clear();
  work.in.clear();
  work.out.clear();
  work.staging_bytes = work.work_bytes = work.staging_base = 0;
  work.phase = {};
  work.phase.ranks = static_cast<std::int32_t>(forms_.size());
  work.phase.rank = rank_;
  layout_.reset(forms_[own_].frame, launch);
  bind_posts();
  bind_moves();
  bind_fold();
  bind_push();
}

std::size_t DevicePlan::shown_bytes(const Launch& launch) {
  layout_.reset(forms_[own_].frame, launch);
  std::size_t bytes = 0;
  for (const auto& extents : forms_[own_].shown_extents)
    for (const std::uint64_t extent : extents) bytes += layout_.extent_bytes(extent);
  return bytes;
}

void DevicePlan::place_staging(DeviceWork& work, std::uint64_t base) {
  work.staging_base = base;
  const auto move = [&](std::uint64_t& address) {
    if (address >= kStaged) address += base - kStaged;
  };
  cuda::Phase& phase = work.phase;
  for (cuda::Post& post : phase.mine) {
    move(post.source);
    move(post.target);
  }
  for (int c = 0; c < phase.copy_count; ++c) {
    move(phase.copies[c].from.at);
    move(phase.copies[c].to);
  }
  for (cuda::Place& operand : phase.fold.operands) move(operand.at);
  for (cuda::Place& target : phase.fold.targets) move(target.at);
}

// ---- where chunks lie

// Into found_; the address of the first piece.
DevicePlan::Found DevicePlan::chunk(const Spot& spot) {
  found_.clear();
  layout_.append(spot.space(), spot.index, found_);
  if (found_.bytes() == 0) return {};
  return {device_address(found_.at(0).data), found_.bytes()};
}

DevicePlan::Found DevicePlan::stage(const Spot& spot, std::vector<StagedChunk>& list,
                                    std::vector<std::pair<Spot, Found>>& known) {
  for (const auto& [each, found] : known)
    if (each == spot) return found;
  const std::size_t at = work_->staging_bytes;
  list.push_back({found_, at});
  work_->staging_bytes +=
      (found_.bytes() + kStagedAlignment - 1) / kStagedAlignment * kStagedAlignment;
  known.push_back({spot, {kStaged + at, found_.bytes()}});
  return known.back().second;
}

// What this rank itself reads or writes need only lie in one piece.
DevicePlan::Found DevicePlan::own_source(const Spot& spot) {
  const Found found = chunk(spot);
  return found_.contiguous() ? found : stage(spot, work_->in, staged_in_);
}
DevicePlan::Found DevicePlan::own_target(const Spot& spot) {
  const Found found = chunk(spot);
  return found_.contiguous() ? found : stage(spot, work_->out, staged_out_);
}

DevicePlan::Found DevicePlan::shown(const Spot& spot) {
  const Found found = chunk(spot);
  if (found.bytes == 0) return found;
  const bool in_place = found_.contiguous() && forms_[own_].unaliased;
  return in_place && (*can_show_)(found_.at(0).data) ? found : stage(spot, work_->in, staged_in_);
}
DevicePlan::Found DevicePlan::landing(const Spot& spot) {
  const Found found = chunk(spot);
  if (found.bytes == 0 || (found_.contiguous() && (*can_show_)(found_.at(0).data))) return found;
  return pushes_ ? Found{0, found.bytes} : stage(spot, work_->out, staged_out_);
}

// ---- the phase

// What only a pair knows goes into the tag: two that disagree touch nothing of each other.
std::uint64_t DevicePlan::tag_of(std::size_t read, std::size_t written) const {
  std::uint64_t tag = launch_->call_hash + (pushes_ ? 1 : 0);
  for (const std::size_t word : {read, written}) {
    tag = (tag ^ word) * 0x9e3779b97f4a7c15U;
    tag ^= tag >> 29;
  }
  return tag | 1;  // never that of memory nobody wrote
}

// What this rank tells each peer; and, from what it will do with theirs, what each must tell it.
void DevicePlan::bind_posts() {
  const HostPhase& own = forms_[own_].phases[1];
  for (std::size_t peer = 0; peer < forms_.size(); ++peer) {
    const Guest& guest = guests_[peer];
    const Found source = guest.reads != nullptr ? shown(*guest.reads) : Found();
    const Found target = guest.writes != nullptr ? landing(*guest.writes) : Found();
    work_->phase.mine[peer] = {source.address, target.address, tag_of(source.bytes, target.bytes),
                               0};
    std::size_t read = 0;
    std::size_t written = 0;
    for (const HostMove& move : own.moves) {
      if (move.peer != static_cast<int>(peer)) continue;
      if (move.action == HostAction::take) read = chunk(move.to).bytes;
      if (move.action == HostAction::give && is_pushed(move)) written = chunk(move.from).bytes;
    }
    if (own.fold) {
      const std::size_t bytes = chunk(own.fold->to).bytes;
      for (const HostFold::Operand& operand : own.fold->operands)
        if (operand.peer == static_cast<int>(peer)) read = bytes / launch_->growth();
      for (const HostFold::Put& put : own.fold->puts)
        if (put.peer == static_cast<int>(peer)) written = bytes;
    }
    work_->phase.tags[peer] = tag_of(read, written);
  }
  // Nobody else reads what a rank tells itself.
  work_->phase.mine[own_].tag = work_->phase.tags[own_];
}

void DevicePlan::bind_moves() {
  cuda::Phase& phase = work_->phase;
  for (const HostMove& move : forms_[own_].phases[1].moves) {
    if (move.action != HostAction::take && move.action != HostAction::copy) continue;
    if (move.action == HostAction::copy && goes_with_push(move)) continue;
    if (is_pushed(move) && phase.mine[move.peer].target != 0) continue;
    const Found to = own_target(move.to);
    if (to.bytes == 0) continue;
    cuda::Copy copy{{0, move.peer, 0}, to.address, to.bytes};
    if (move.action == HostAction::copy) copy.from = {own_source(move.from).address, kLocal, 0};
    if (copy.from.peer == kLocal && copy.from.at == copy.to) continue;  // in place
    phase.copies[phase.copy_count++] = copy;
    work_->work_bytes += to.bytes;
  }
}

void DevicePlan::bind_fold() {
  const auto& form = forms_[own_].phases[1].fold;
  if (!form) return;
  const Found to = own_target(form->to);
  if (to.bytes == 0) return;
  cuda::Fold& fold = work_->phase.fold;
  fold.bytes = to.bytes / launch_->growth();
  work_->work_bytes += to.bytes;
  for (const HostFold::Operand& operand : form->operands) {
    const bool is_own = operand.peer == kLocal;
    fold.operands[fold.operand_count++] = {is_own ? own_source(operand.from).address : 0,
                                           operand.peer, operand.raw};
  }
  fold.targets[fold.target_count++] = {to.address, kLocal, 0};
  for (const HostFold::Put& put : form->puts) fold.targets[fold.target_count++] = {0, put.peer, 0};
  cuda::set_reduction(fold, {launch_->dtype, launch_->reduction, form->finish,
                             static_cast<int>(forms_.size()), launch_->widens, form->balanced});
}

// The copy that a rank keeps of what it pushes is one target more.
bool DevicePlan::goes_with_push(const HostMove& copy) const {
  const auto& moves = forms_[own_].phases[1].moves;
  return std::any_of(moves.begin(), moves.end(), [&](const HostMove& move) {
    return move.action == HostAction::give && is_pushed(move) && move.from == copy.from;
  });
}

void DevicePlan::bind_push() {
  cuda::Fold& fold = work_->phase.fold;
  for (const HostMove& move : forms_[own_].phases[1].moves) {
    const bool is_kept = move.action == HostAction::copy && goes_with_push(move);
    if (!is_kept && !(move.action == HostAction::give && is_pushed(move))) continue;
    const Found from = own_source(move.from);
    if (from.bytes == 0) return;
    if (fold.bytes == 0) work_->work_bytes += from.bytes;
    fold.bytes = from.bytes;
    fold.copies = 1;
    fold.operands[0] = {from.address, kLocal, 0};
    fold.operand_count = 1;
    if (!is_kept) {
      fold.targets[fold.target_count++] = {0, move.peer, 0};
    } else if (const Found to = own_target(move.to); to.address != from.address) {
      fold.targets[fold.target_count++] = {to.address, kLocal, 0};
    }
  }
}

}  // namespace tutti::engine
