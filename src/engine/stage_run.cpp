#include "engine/stage_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "reduce/copy.hpp"

namespace tutti::engine {

using reduce::Stores;
using schedule::kLocal;
using schedule::Space;

namespace {

// What one step does at most, so that other groups of this rank get their turn and a failure is
// noticed.
constexpr std::size_t kQuantum = 256 * 1024;
// Of a line's payload, what its first cache line holds; of a window, what is asked for in advance.
constexpr std::size_t kFirstLineBytes = 48;
constexpr std::size_t kFetchAhead = 2048;
// The shortest piece: its copy takes as long as a few waits.
constexpr std::size_t kShortestPiece = 16 * 1024;
// Targets larger than this leave the private caches anyway: stores that pass them by save reading
// each line first.
constexpr std::size_t kStreamingFrom = 4 << 20;

constexpr std::size_t rounded_down(std::size_t bytes) { return bytes / 64 * 64; }
constexpr std::size_t rounded_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

StageRun::StageRun(Stage& stage)
    : stage_(stage),
      sources_(static_cast<std::size_t>(stage.size())),
      targets_(sources_.size()),
      addresses_(sources_.size()),
      operands_(sources_.size()) {
  destinations_.reserve(sources_.size());
}

// ---- beginning
// -----------------------------------------------------------------------------------

void StageRun::Side::set(const std::vector<Piece>& pieces) {
  base = nullptr;
  bytes = 0;
  if (pieces.size() == 1) {
    base = pieces[0].data;
    bytes = pieces[0].bytes;
    return;
  }
  strand.clear();
  for (const Piece& piece : pieces) strand.add(piece.data, piece.bytes);
  bytes = strand.bytes();
  if (bytes > 0 && strand.contiguous()) base = strand.at(0).data;
}

void StageRun::begin(StagePlan& plan, const Launch& launch, std::uint64_t sequence,
                     std::uint32_t print) {
  plan_ = &plan;
  launch_ = &launch;
  sequence_ = sequence;
  print_ = print;
  base_ = stage_.mark();
  stranger_ = -1;
  failure_ = {};
  input_.set(launch.input);
  output_.set(launch.output);
  bind_if_new(plan);
  // What is overwritten after it was read is in the cache already.
  const bool warm = launch.in_place && (plan.program.two_phases || !plan.program.unaliased);
  stores_ = output_.bytes >= kStreamingFrom && !warm ? Stores::streaming : Stores::cached;
  Line& line = stage_.line(sequence);
  switch (plan.way) {
    case StagePlan::Way::line: pack(line.payload); break;
    case StagePlan::Way::window:
      line.access = 0;
      if (plan.widest >= kHopeFrom && !stage_.crowded()) describe_places(line);
      if ((line.access & kHopeful) == 0) pack(stage_.own().one_shot[sequence % 2]);
      break;
    case StagePlan::Way::meet: describe_places(line); break;
  }
  met_ = 0;
  access_ = kAllAccess;
  hopes_ = 0;
  job_ = at_ = time_ = 0;
  action_ = 0;
  phase_ = Phase::meeting;
  stage_.publish(sequence, launch.fingerprint, print);
}

void StageRun::bind_if_new(StagePlan& plan) {
  if (!plan.bound || plan.input_bytes != input_.bytes || plan.output_bytes != output_.bytes ||
      plan.dtype != launch_->dtype || !launch_->block_bytes.empty())
    bind(plan);
}

Move StageRun::move_of(int peer, std::uint32_t slot, const Chunk& from, const Chunk& to) const {
  Move move;
  move.peer = peer;
  move.slot = slot;
  move.from_space = from.space;
  move.to_space = to.space;
  move.from = layout_.offset_of(from.space, from.index);
  move.to = layout_.offset_of(to.space, to.index);
  move.bytes = move.split = layout_.extent_bytes(extent_of(layout_.program(), to.space, to.index));
  return move;
}

// Turns chunks into bytes. Done again only when the sizes differ from the last time.
void StageRun::bind(StagePlan& plan) {
  const StageProgram& program = plan.program;
  layout_.reset(program.program, *launch_);
  plan.bound = true;
  plan.input_bytes = input_.bytes;
  plan.output_bytes = output_.bytes;
  plan.dtype = launch_->dtype;
  for (auto* moves :
       {&plan.shown, &plan.copies, &plan.takes, &plan.gives, &plan.second, &plan.puts})
    moves->clear();
  plan.sources.clear();
  for (std::uint32_t s = 0; s < program.shown.size(); ++s)
    plan.shown.push_back(move_of(kLocal, s, program.shown[s], program.shown[s]));
  for (const LocalCopy& copy : program.copies)
    plan.copies.push_back(move_of(kLocal, 0, copy.from, copy.to));
  const auto split = [](const Move& move, double givers_share) {
    return move.bytes -
           rounded_down(static_cast<std::size_t>(static_cast<double>(move.bytes) * givers_share));
  };
  for (const Take& take : program.takes) {
    plan.takes.push_back(move_of(take.peer, take.slot, take.from, take.to));
    plan.takes.back().split = split(plan.takes.back(), take.givers_share);
  }
  for (const Take& take : program.second)
    plan.second.push_back(move_of(take.peer, take.slot, take.from, take.to));
  // A giver does not have the side that it gives to, so the chunk's size is asked for where it is.
  const auto give = [&](const Give& each) {
    Move move = move_of(each.peer, 0, each.from, each.from);
    move.to_space = each.to.space;
    move.to = layout_.offset_of(each.to.space, each.to.index);
    move.split = split(move, each.share);
    return move;
  };
  for (const Give& each : program.gives) plan.gives.push_back(give(each));
  for (const Give& each : program.puts) plan.puts.push_back(give(each));
  if (program.fold) {
    for (const StageFold::Source& source : program.fold->sources)
      plan.sources.push_back(
          {move_of(source.peer, source.slot, source.from, program.fold->to), source.raw});
    plan.fold = move_of(kLocal, 0, program.fold->to, program.fold->to);
  }
  choose_way(plan);
}

void StageRun::choose_way(StagePlan& plan) const {
  std::size_t widest = 0;
  std::size_t widest_padded = 0;
  std::size_t most = 1;
  plan.longest = 0;
  for (const auto& extents : plan.program.shown_extents) {
    std::size_t bytes = 0;
    std::size_t padded = 0;
    for (std::uint64_t extent : extents) {
      const std::size_t chunk = layout_.extent_bytes(extent);
      bytes += chunk;
      padded += rounded_up(chunk);
      plan.longest = std::max(plan.longest, chunk);
    }
    widest = std::max(widest, bytes);
    widest_padded = std::max(widest_padded, padded);
    most = std::max(most, extents.size());
  }
  plan.widest = widest;
  plan.way = StagePlan::Way::meet;
  if (!plan.program.two_phases && widest <= kLineBytes)
    plan.way = StagePlan::Way::line;
  else if (!plan.program.two_phases && widest_padded <= kOneShotBytes && !may_read_memory(plan))
    plan.way = StagePlan::Way::window;
  const std::size_t most_bytes = rounded_down(kSlotBytes / most);
  // One rank copies in while the others copy out: that takes pieces. Where all do the same at the
  // same time, fewer pieces are fewer waits.
  const bool overlaps = plan.program.lopsided && !stage_.crowded();
  const std::size_t wanted = overlaps ? plan.longest / 4 : plan.longest;
  plan.piece =
      std::clamp<std::size_t>(rounded_up(wanted), std::min(kShortestPiece, most_bytes), most_bytes);
  set_packed(plan);
}

// Where chunks lie in a line or a one-shot window: one after the other, in windows on cache lines.
void StageRun::set_packed(StagePlan& plan) const {
  const auto place = [&](int rank, std::uint32_t slot) {
    const auto& extents = plan.program.shown_extents[static_cast<std::size_t>(rank)];
    std::size_t at = 0;
    for (std::uint32_t s = 0; s < slot; ++s) {
      const std::size_t chunk = layout_.extent_bytes(extents[s]);
      at += plan.way == StagePlan::Way::line ? chunk : rounded_up(chunk);
    }
    return at;
  };
  for (Move& move : plan.shown) move.packed = place(stage_.rank(), move.slot);
  for (Move& move : plan.takes) move.packed = place(move.peer, move.slot);
  for (StagePlan::Source& source : plan.sources)
    if (source.move.peer != kLocal) source.move.packed = place(source.move.peer, source.move.slot);
}

void StageRun::pack(std::byte* to) const {
  for (const Move& move : plan_->shown) {
    const Side& from = side(move.from_space);
    // Scalars are the most frequent messages of all, and a call of memcpy takes longer than they
    // do.
    if (move.bytes == 4 && from.base != nullptr)
      std::memcpy(to + move.packed, from.base + move.from, 4);
    else if (move.bytes == 8 && from.base != nullptr)
      std::memcpy(to + move.packed, from.base + move.from, 8);
    else
      copy_in(to + move.packed, from, move.from, move.bytes);
  }
}

// Says where this rank's buffers are, and what may be done with them. In a small collective a rank
// whose buffers all can reach leaves its window empty.
void StageRun::describe_places(Line& line) {
  const StageProgram& program = program_to_share();
  Places places;
  std::uint32_t access = program.unaliased ? kUnaliased : 0;
  const Side& source = program.shown.empty() ? output_ : side(program.shown[0].space);
  if (program.shown.empty()) {
    access |= kSourceMapped | kSourceWhole;
  } else if (source.base != nullptr) {
    access |= kSourceWhole;
    places.address = reinterpret_cast<std::uintptr_t>(source.base);
    places.source = stage_.locate(source.base, source.bytes);
    if (places.source.region != 0) access |= kSourceMapped;
  }
  if (output_.bytes == 0) {
    access |= kTargetMapped;
  } else if (output_.base != nullptr) {
    places.target = stage_.locate(output_.base, output_.bytes);
    if (places.target.region != 0) access |= kTargetMapped;
  }
  const std::uint32_t needed = needed_access(program);
  if (plan_->way == StagePlan::Way::window && (access & needed) == needed) access |= kHopeful;
  line.access = access;
  std::memcpy(line.payload, &places, sizeof places);
}

// For buffers that everybody can reach.
const StageProgram& StageRun::program_to_share() const {
  return plan_->to_share ? plan_->to_share->program : plan_->program;
}

std::uint32_t StageRun::needed_access(const StageProgram& program) {
  return kSourceMapped | kUnaliased | (program.two_phases ? kTargetMapped : 0U);
}

// ---- stepping
// ------------------------------------------------------------------------------------

bool StageRun::step() {
  switch (phase_) {
    case Phase::meeting: return meet();
    case Phase::direct: return step_direct();
    case Phase::reading: return step_reading();
    case Phase::pieces: return step_pieces();
    case Phase::repacking:
      if (!await_last_mark()) return false;
      finish_small();
      return true;
    case Phase::departing:
      if (!await_last_mark() || somebody_went_back()) return false;
      phase_ = Phase::done;
      return true;
    case Phase::done: return false;
  }
  return false;
}

std::vector<int> StageRun::waiting_for() const {
  std::vector<int> late;
  if (phase_ == Phase::done) return late;
  std::uint64_t least = stage_.mark();
  for (int peer = 0; peer < stage_.size(); ++peer)
    least = std::min(least, stage_.of(peer).mark.load(std::memory_order_acquire));
  for (int peer = 0; peer < stage_.size(); ++peer) {
    if (peer == stage_.rank()) continue;
    const bool behind = phase_ == Phase::meeting
                            ? !stage_.arrived(peer, sequence_)
                            : stage_.of(peer).mark.load(std::memory_order_acquire) == least;
    if (behind) late.push_back(peer);
  }
  return late;
}

// Beginning with the next rank, so that not all look at the same one first.
bool StageRun::meet() {
  const int size = stage_.size();
  const int seen = met_;
  for (; met_ < size - 1; ++met_) {
    int peer = stage_.rank() + 1 + met_;
    if (peer >= size) peer -= size;
    const Line& line = stage_.line_of(peer, sequence_);
    if (line.sequence.load(std::memory_order_acquire) != sequence_) {
      fetch_ahead(peer);
      return met_ != seen;
    }
    if (line.print != print_) {
      stranger_ = peer;
      return true;
    }
    access_ &= line.access;
    hopes_ |= line.access;
  }
  choose_phase();
  return true;
}

// What the peer shows is on its way at the same time as its line: asking for both at once spares
// the second of two waits that would follow one another. Lines that have not changed are here
// already, and asking again costs nothing.
void StageRun::fetch_ahead(int peer) const {
  if (plan_->way == StagePlan::Way::meet || plan_->widest <= kFirstLineBytes) return;
  const std::byte* packed = packed_of(peer);
  if (plan_->way == StagePlan::Way::line) {
    __builtin_prefetch(packed + kFirstLineBytes);
    return;
  }
  const auto fetch = [&](const Move& move) {
    if (move.peer != peer) return;
    const std::size_t bytes = std::min(move.bytes, kFetchAhead);
    for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(packed + move.packed + at);
  };
  for (const Move& take : plan_->takes) fetch(take);
  for (const StagePlan::Source& source : plan_->sources) fetch(source.move);
}

void StageRun::choose_phase() {
  if (plan_->way == StagePlan::Way::line) return finish_small();
  const std::uint32_t own = stage_.line(sequence_).access;
  access_ &= own;
  hopes_ |= own;
  if (plan_->way == StagePlan::Way::window) return choose_small_phase();
  const std::uint32_t needed = needed_access(program_to_share());
  if ((access_ & needed) == needed) return begin_direct();
  const std::uint32_t readable = kSourceWhole | kUnaliased;
  const bool reads = may_read_memory(*plan_) && (access_ & readable) == readable;
  phase_ = reads ? Phase::reading : Phase::pieces;
  if (phase_ != Phase::reading) return;
  for (const Move& take : plan_->takes) {
    Places places;
    std::memcpy(&places, stage_.line_of(take.peer, sequence_).payload, sizeof places);
    addresses_[static_cast<std::size_t>(take.peer)] = places.address;
  }
}

// All hoped: nothing needs to be copied. None did: all is there. Some did, in vain: they copy now.
void StageRun::choose_small_phase() {
  if ((access_ & kHopeful) != 0) return begin_direct();
  if ((hopes_ & kHopeful) == 0) return finish_small();
  if ((stage_.line(sequence_).access & kHopeful) != 0) pack(stage_.own().one_shot[sequence_ % 2]);
  stage_.set_mark(base_ + 1);
  last_mark_ = base_ + 1;
  met_ = 0;
  phase_ = Phase::repacking;
}

void StageRun::begin_direct() {
  if (plan_->to_share) plan_ = plan_->to_share.get();
  bind_if_new(*plan_);
  reach_everybody();
  phase_ = Phase::direct;
}

// As far as sizes and the schedule say, which all ranks know.
bool StageRun::may_read_memory(const StagePlan& plan) const {
  const ReadingRange range =
      reading_range(plan.program.lopsided, plan.program.readers, stage_.crowded());
  return stage_.can_read_memory() && !has_reduction(launch_->collective) &&
         plan.longest >= range.from && plan.longest <= range.up_to;
}

// ---- small
// ---------------------------------------------------------------------------------------

const std::byte* StageRun::packed_of(int peer) const {
  return plan_->way == StagePlan::Way::line ? stage_.line_of(peer, sequence_).payload
                                            : stage_.of(peer).one_shot[sequence_ % 2];
}

void StageRun::finish_small() {
  for (const Move& copy : plan_->copies) copy_local(copy, 0, copy.bytes);
  for (const Move& take : plan_->takes)
    copy_out(side(take.to_space), take.to, packed_of(take.peer) + take.packed, take.bytes);
  phase_ = Phase::done;
  if (!plan_->program.fold || plan_->fold.bytes == 0) return;
  const auto from = [&](std::size_t s) {
    const Move& move = plan_->sources[s].move;
    return packed_of(move.peer) + move.packed;
  };
  fold_range(0, plan_->fold.bytes, from, nullptr);
}

void StageRun::copy_in(std::byte* to, const Side& from, std::size_t at, std::size_t bytes) const {
  while (bytes > 0) {
    std::size_t run = bytes;
    const std::byte* piece = from.at(at, run);
    std::memcpy(to, piece, run);
    to += run;
    at += run;
    bytes -= run;
  }
}

void StageRun::copy_out(const Side& to, std::size_t at, const std::byte* from,
                        std::size_t bytes) const {
  while (bytes > 0) {
    std::size_t run = bytes;
    std::byte* piece = to.at(at, run);
    reduce::copy(piece, from, run, stores_);
    from += run;
    at += run;
    bytes -= run;
  }
}

void StageRun::copy_local(const Move& move, std::size_t begin, std::size_t end) const {
  const Side& from = side(move.from_space);
  while (begin < end) {
    std::size_t run = end - begin;
    const std::byte* piece = from.at(move.from + begin, run);
    copy_out(side(move.to_space), move.to + begin, piece, run);
    begin += run;
  }
}

template <class From>
void StageRun::fold_range(std::size_t begin, std::size_t end, const From& from, std::byte* result) {
  const std::size_t element = size_of(launch_->dtype);
  const reduce::Folding folding{launch_->dtype, launch_->reduction, plan_->program.fold->finish,
                                stage_.size()};
  const Side& to = side(plan_->fold.to_space);
  for (std::size_t at = begin; at < end;) {
    std::size_t run = end - at;
    std::byte* target = to.at(plan_->fold.to + at, run);
    for (std::size_t s = 0; s < plan_->sources.size(); ++s) {
      const StagePlan::Source& source = plan_->sources[s];
      const std::byte* data = source.move.peer == kLocal
                                  ? side(source.move.from_space).at(source.move.from + at, run)
                                  : from(s) + (at - begin);
      operands_[s] = {data, source.raw};
    }
    destinations_.clear();
    destinations_.push_back(result != nullptr ? result + (at - begin) : target);
    if (phase_ == Phase::direct)
      for (const Move& put : plan_->puts)
        destinations_.push_back(targets_[static_cast<std::size_t>(put.peer)] + put.to + at);
    reduce::fold_to(folding, destinations_, std::span(operands_.data(), plan_->sources.size()),
                    run / element, result != nullptr ? Stores::cached : stores_);
    // Peers read the result from the window, so it is to stay in the cache; the caller's need not.
    if (result != nullptr) reduce::copy(target, destinations_[0], run, stores_);
    at += run;
  }
}

// ---- direct
// --------------------------------------------------------------------------------------

// Finds all buffers that this rank is going to touch. Their owners have said that it has mapped
// them; should it not find one all the same, all would have to know, so that is a failure.
void StageRun::reach_everybody() {
  const auto find = [&](int peer, bool target, std::size_t bytes) -> std::byte* {
    Places places;
    std::memcpy(&places, stage_.line_of(peer, sequence_).payload, sizeof places);
    return stage_.reach(peer, target ? places.target : places.source, bytes);
  };
  const auto note = [&](std::vector<std::byte*>& list, int peer, bool target, std::size_t bytes) {
    std::byte*& at = list[static_cast<std::size_t>(peer)];
    at = find(peer, target, bytes);
    if (at == nullptr)
      failure_ = {Code::internal,
                  fmt::format("memory of rank {} is not where it said that it is", peer),
                  {stage_.rank(), peer, sequence_}};
  };
  for (const Move& take : plan_->takes) note(sources_, take.peer, false, take.from + take.bytes);
  for (const StagePlan::Source& source : plan_->sources)
    if (source.move.peer != kLocal)
      note(sources_, source.move.peer, false, source.move.from + source.move.bytes);
  for (const Move& put : plan_->puts) note(targets_, put.peer, true, put.to + put.bytes);
  if ((access_ & kTargetMapped) == 0) return;
  for (const Move& give : plan_->gives)
    if (give.split < give.bytes) note(targets_, give.peer, true, give.to + give.bytes);
}

// One move at a time, a quantum of it: gives, copies, takes, then the fold.
bool StageRun::step_direct() {
  if (!failure_.ok()) return false;
  const bool sharing = (access_ & kTargetMapped) != 0;
  const std::size_t gives = sharing ? plan_->gives.size() : 0;
  const std::size_t copies = gives + plan_->copies.size();
  const std::size_t takes = copies + plan_->takes.size();
  const std::size_t folds = takes + (plan_->program.fold ? 1 : 0);
  if (job_ == folds) {
    leave(base_ + 1);
    return true;
  }
  std::size_t end = 0;
  if (job_ < gives) {
    const Move& give = plan_->gives[job_];
    if (at_ == 0) at_ = give.split;
    end = std::min(give.bytes, at_ + kQuantum);
    std::size_t run = end - at_;
    if (run > 0)
      reduce::copy(targets_[static_cast<std::size_t>(give.peer)] + give.to + at_,
                   side(give.from_space).at(give.from + at_, run), run, stores_);
    at_ = end == give.bytes ? 0 : end;
  } else if (job_ < copies) {
    const Move& copy = plan_->copies[job_ - gives];
    end = std::min(copy.bytes, at_ + kQuantum);
    copy_local(copy, at_, end);
    at_ = end == copy.bytes ? 0 : end;
  } else if (job_ < takes) {
    const Move& take = plan_->takes[job_ - copies];
    const std::size_t own = sharing ? take.split : take.bytes;
    end = std::min(own, at_ + kQuantum);
    copy_out(side(take.to_space), take.to + at_,
             sources_[static_cast<std::size_t>(take.peer)] + take.from + at_, end - at_);
    at_ = end == own ? 0 : end;
  } else {
    const std::size_t begin = at_;
    end = std::min(plan_->fold.bytes, begin + kQuantum);
    const auto from = [&](std::size_t s) {
      const Move& move = plan_->sources[s].move;
      return sources_[static_cast<std::size_t>(move.peer)] + move.from + begin;
    };
    if (begin < end) fold_range(begin, end, from, nullptr);
    at_ = end == plan_->fold.bytes ? 0 : end;
  }
  if (at_ == 0) ++job_;
  return true;
}

// Nobody goes before all have come this far: they may be reading each other's memory.
void StageRun::leave(std::uint64_t mark) {
  stage_.set_mark(mark);
  last_mark_ = mark;
  met_ = 0;
  phase_ = Phase::departing;
}

// A rank that failed after it had come this far gave its buffers back to its caller, and took back
// its line before that. What was read since is nothing to rely on; its failure is on the way.
bool StageRun::somebody_went_back() const {
  std::atomic_thread_fence(std::memory_order_acquire);
  for (int peer = 0; peer < stage_.size(); ++peer)
    if (!stage_.arrived(peer, sequence_)) return true;
  return false;
}

bool StageRun::await_last_mark() {
  const int size = stage_.size();
  for (; met_ < size - 1; ++met_) {
    int peer = stage_.rank() + 1 + met_;
    if (peer >= size) peer -= size;
    if (!stage_.reached(peer, last_mark_)) return false;
  }
  return true;
}

// ---- reading
// -------------------------------------------------------------------------------------

bool StageRun::step_reading() {
  const std::size_t copies = plan_->copies.size();
  const std::size_t takes = copies + plan_->takes.size();
  if (job_ < copies) {
    const Move& copy = plan_->copies[job_];
    const std::size_t end = std::min(copy.bytes, at_ + kQuantum);
    copy_local(copy, at_, end);
    at_ = end == copy.bytes ? 0 : end;
  } else if (job_ < takes) {
    if (!read_part(plan_->takes[job_ - copies])) return false;
  } else {
    leave(base_ + 1);
    return true;
  }
  if (at_ == 0) ++job_;
  return true;
}

bool StageRun::read_part(const Move& take) {
  std::size_t run = std::min(take.bytes - at_, kQuantum);
  if (run > 0) {
    std::byte* to = side(take.to_space).at(take.to + at_, run);
    const std::uint64_t address = addresses_[static_cast<std::size_t>(take.peer)] + take.from + at_;
    if (!read_memory(stage_.process_of(take.peer), address, to, run)) {
      failure_ = cannot_read(take.peer);
      return false;
    }
  }
  at_ = at_ + run == take.bytes ? 0 : at_ + run;
  return true;
}

Status StageRun::cannot_read(int peer) const {
  return {Code::peer_lost,
          fmt::format("memory of rank {} can no longer be read: it ended, or freed its buffer "
                      "during the call",
                      peer),
          {stage_.rank(), peer, sequence_}};
}

// ---- pieces
// --------------------------------------------------------------------------------------
//
//   turn      0      1       2       3    …          With A actions a turn, action a of turn t
//   in       p0     p1      p2      p3               leaves the mark base + t·A + a + 1. Everybody
//   work            p0      p1      p2               waits only for marks of earlier actions, so
//   out                     p0      p1               nobody waits in a circle.

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
  const auto from = [&](std::size_t s) { return of(plan_->sources[s].move); };
  for (const Move& take : plan_->takes) {
    const std::size_t end = std::min(take.bytes, begin + plan_->piece);
    if (begin < end) copy_out(side(take.to_space), take.to + begin, of(take), end - begin);
  }
  if (!plan_->program.fold) return;
  const std::size_t end = std::min(plan_->fold.bytes, begin + plan_->piece);
  std::byte* result =
      plan_->program.two_phases ? stage_.own().results[piece % kPipeSlots] : nullptr;
  if (begin < end) fold_range(begin, end, from, result);
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
