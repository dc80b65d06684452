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
// Targets larger than this leave the private caches anyway: stores that pass them by save reading
// each line first.
constexpr std::size_t kStreamingFrom = 4 << 20;

}  // namespace

StageRun::StageRun(Stage& stage)
    : stage_(stage),
      sources_(static_cast<std::size_t>(stage.size())),
      targets_(sources_.size()),
      addresses_(sources_.size()),
      found_(sources_.size()),
      operands_(sources_.size()) {
  destinations_.reserve(sources_.size());
}

// ---- beginning

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
  was_direct_ = false;
  print_ = print;
  base_ = stage_.mark();
  stranger_ = -1;
  failure_ = {};
  input_.set(launch.input);
  output_.set(launch.output);
  bind(plan, launch, stage_);
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
  std::uint32_t access = program.unaliased ? kUnaliased : 0U;
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
  const bool reads = plan_->may_read && (access_ & readable) == readable;
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
  bind(*plan_, *launch_, stage_);
  reach_everybody();
  was_direct_ = true;
  phase_ = Phase::direct;
}

// ---- small

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
  for (std::size_t s = 0; s < plan_->sources.size(); ++s) {
    const Move& move = plan_->sources[s].move;
    if (move.peer != kLocal) found_[s] = packed_of(move.peer) + move.packed;
  }
  fold_range(0, plan_->fold.bytes, nullptr);
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

void StageRun::fold_range(std::size_t begin, std::size_t end, std::byte* result) {
  if (tracer_ == nullptr || end - begin < trace::kLeastFold)
    return fold_untraced(begin, end, result);
  const std::int64_t began = trace::now_ns();
  fold_untraced(begin, end, result);
  tracer_->fold(channel_, sequence_, end - begin, began, trace::now_ns());
}

void StageRun::fold_untraced(std::size_t begin, std::size_t end, std::byte* result) {
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
                                  : found_[s] + (at - begin);
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
    for (std::size_t s = 0; s < plan_->sources.size(); ++s) {
      const Move& move = plan_->sources[s].move;
      if (move.peer != kLocal)
        found_[s] = sources_[static_cast<std::size_t>(move.peer)] + move.from + begin;
    }
    if (begin < end) fold_range(begin, end, nullptr);
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

}  // namespace tutti::engine
