#include "engine/host_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/numbers.hpp"
#include "reduce/copy.hpp"

namespace tutti::engine {

using reduce::Stores;
using schedule::Carrier;
using schedule::HostAction;
using schedule::kLocal;
using schedule::Reach;

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

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

HostRun::HostRun(HostMemory& memory, schedule::HostForms forms)
    : memory_(memory),
      plan_(std::move(forms)),
      sources_(at(memory.size())),
      targets_(sources_.size()),
      addresses_(sources_.size()),
      found_(sources_.size()),
      operands_(sources_.size()) {
  destinations_.reserve(sources_.size());
}

// ---- arriving

void HostRun::Side::set(const std::vector<Piece>& pieces) {
  base = nullptr;
  bytes = 0;
  if (pieces.size() == 1) {
    base = pieces[0].data;
    bytes = pieces[0].bytes;
    return;
  }
  scattered.clear();
  for (const Piece& piece : pieces) scattered.add(piece.data, piece.bytes);
  bytes = scattered.bytes();
  if (bytes > 0 && scattered.contiguous()) base = scattered.at(0).data;
}

void HostRun::begin(const Launch& launch, std::uint64_t sequence) {
  launch_ = &launch;
  sequence_ = sequence;
  was_mapped_ = false;
  base_ = memory_.mark();
  memory_.open(sequence);
  if (!failure_.ok()) failure_ = {};
  input_.set(launch.input);
  output_.set(launch.output);
  growth_ = launch.growth();
  plan_.bind(launch, memory_.facts());
  // What is overwritten after it was read is in the cache already.
  const schedule::HostForm& form = *plan_.window().form;
  const bool warm = launch.in_place && (form.meetings() > 1 || !form.unaliased);
  stores_ = output_.bytes >= kStreamingFrom && !warm ? Stores::streaming : Stores::cached;
  fill_line(memory_.line(sequence));
  met_ = 0;
  access_ = kAllAccess;
  hopes_ = 0;
  job_ = at_ = turn_ = phase_ = 0;
  progress_ = Progress::arriving;
  memory_.publish(sequence, launch.fingerprint, launch.call_hash);
}

// Phase 0, as far as it can be done before anybody has come.
void HostRun::fill_line(Line& line) {
  switch (plan_.way().carrier) {
    case Carrier::line: return pack(line.payload);
    case Carrier::window:
      line.access = 0;
      if (plan_.way().may_hope) describe_buffers(line);
      if ((line.access & kHopeful) == 0) pack(memory_.own().windows[memory_.turn_of(sequence_)]);
      return;
    case Carrier::pieces: return describe_buffers(line);
  }
}

void HostRun::pack(std::byte* to) const {
  for (const BoundMove& show : plan_.window().phases[0].moves) {
    const Side& from = side(show.from_space);
    // Scalars are the most frequent messages of all, and a call of memcpy takes longer than they
    // do.
    if (show.bytes == 4 && from.base != nullptr)
      std::memcpy(to + show.packed, from.base + show.from, 4);
    else if (show.bytes == 8 && from.base != nullptr)
      std::memcpy(to + show.packed, from.base + show.from, 8);
    else
      copy_in(to + show.packed, from, show.from, show.bytes);
  }
}

// Says where this rank's buffers are, and what may be done with them. A rank whose buffers all can
// reach leaves its window empty.
void HostRun::describe_buffers(Line& line) {
  const schedule::HostForm& form = plan_.forms().mapped;
  BufferPlaces places;
  std::uint32_t access = form.unaliased ? kUnaliased : 0U;
  const Side& source = form.shown.empty() ? output_ : side(form.shown[0].space());
  if (form.shown.empty()) {
    access |= kSourceMapped | kSourceWhole;
  } else if (source.base != nullptr) {
    access |= kSourceWhole;
    places.address = reinterpret_cast<std::uintptr_t>(source.base);
    places.source = memory_.locate(source.base, source.bytes);
    if (places.source.region != 0) access |= kSourceMapped;
  }
  if (output_.bytes == 0) {
    access |= kTargetMapped;
  } else if (output_.base != nullptr) {
    places.target = memory_.locate(output_.base, output_.bytes);
    if (places.target.region != 0) access |= kTargetMapped;
  }
  if (plan_.way().carrier == Carrier::window && reach_by(access) != Reach::window)
    access |= kHopeful;
  line.access = access;
  std::memcpy(line.payload, &places, sizeof places);
}

schedule::Reach HostRun::reach_by(std::uint32_t access) const {
  return schedule::reach_of(plan_.forms(), plan_.way(),
                            {.source_mapped = (access & kSourceMapped) != 0,
                             .target_mapped = (access & kTargetMapped) != 0,
                             .source_readable = (access & kSourceWhole) != 0,
                             .unaliased = (access & kUnaliased) != 0});
}

void HostRun::begin_reaching(schedule::Reach reach) {
  switch (reach) {
    case Reach::mapped: return begin_work(plan_.mapped(*launch_));
    case Reach::mapped_source: return begin_work(plan_.mapped_source(*launch_));
    case Reach::readable: return begin_work(plan_.readable(*launch_));
    case Reach::window: progress_ = Progress::piecing; return;
  }
}

// Beginning with the next rank, so that not all look at the same one first.
bool HostRun::meet() {
  const int size = memory_.size();
  const int seen = met_;
  for (; met_ < size - 1; ++met_) {
    int peer = memory_.rank() + 1 + met_;
    if (peer >= size) peer -= size;
    const Line& line = memory_.line_of(peer, sequence_);
    if (line.sequence.load(std::memory_order_acquire) != sequence_) {
      fetch_ahead(peer);
      return met_ != seen;
    }
    if (line.call_hash != launch_->call_hash) {
      failure_ = {Code::mismatch, "another call", {memory_.rank(), peer, number_of(sequence_)}};
      return true;
    }
    access_ &= line.access;
    hopes_ |= line.access;
  }
  choose_form();
  return true;
}

// What the peer shows is on its way at the same time as its line: asking for both at once spares
// the second of two waits that would follow one another. Lines that have not changed are here
// already, and asking again costs nothing.
void HostRun::fetch_ahead(int peer) const {
  const schedule::HostWay& way = plan_.way();
  if (way.carrier == Carrier::pieces || way.widest <= kFirstLineBytes) return;
  const std::byte* packed = packed_of(peer);
  if (way.carrier == Carrier::line) {
    __builtin_prefetch(packed + kFirstLineBytes);
    return;
  }
  const auto fetch = [&](std::size_t from, std::size_t bytes) {
    bytes = std::min(bytes, kFetchAhead);
    for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(packed + from + i);
  };
  const BoundPhase& phase = plan_.window().phases[1];
  for (const BoundMove& take : phase.moves)
    if (take.peer == peer) fetch(take.packed, take.bytes);
  if (!phase.has_fold) return;
  for (const BoundFold::Operand& operand : phase.fold.operands)
    if (operand.peer == peer) fetch(operand.packed, phase.fold.bytes);
}

// Everybody sees the same lines, so everybody chooses alike.
void HostRun::choose_form() {
  const Carrier carrier = plan_.way().carrier;
  if (carrier == Carrier::line) return finish_packed();
  const std::uint32_t own = memory_.line(sequence_).access;
  access_ &= own;
  hopes_ |= own;
  if (carrier == Carrier::window) return choose_after_window();
  begin_reaching(reach_by(access_));
}

// All hoped: nothing needs to be copied. None did: all is there. Some did, in vain: they copy now.
void HostRun::choose_after_window() {
  if ((access_ & kHopeful) != 0) return begin_reaching(reach_by(access_));
  if ((hopes_ & kHopeful) == 0) return finish_packed();
  if ((memory_.line(sequence_).access & kHopeful) != 0)
    pack(memory_.own().windows[memory_.turn_of(sequence_)]);
  reach_mark(base_ + 1);
  progress_ = Progress::repacking;
}

const std::byte* HostRun::packed_of(int peer) const {
  return plan_.way().carrier == Carrier::line
             ? memory_.line_of(peer, sequence_).payload
             : memory_.of(peer).windows[memory_.turn_of(sequence_)];
}

// Phase 1 with everything in lines or windows. Two of each are used in turn, so nobody has to wait
// for those who still read.
void HostRun::finish_packed() {
  const BoundPhase& phase = plan_.window().phases[1];
  for (const BoundMove& move : phase.moves) {
    if (move.action == HostAction::copy)
      copy_local(move, 0, move.bytes);
    else
      copy_out(side(move.to_space), move.to, packed_of(move.peer) + move.packed, move.bytes);
  }
  progress_ = Progress::done;
  if (!phase.has_fold || phase.fold.bytes == 0) return;
  for (std::size_t o = 0; o < phase.fold.operands.size(); ++o) {
    const BoundFold::Operand& operand = phase.fold.operands[o];
    if (operand.peer != kLocal) found_[o] = packed_of(operand.peer) + operand.packed;
  }
  fold_range(phase.fold, 0, phase.fold.bytes, nullptr);
}

// ---- stepping

bool HostRun::step() {
  if (!failure_.ok()) return false;
  switch (progress_) {
    case Progress::arriving: return meet();
    case Progress::working: return step_work();
    case Progress::piecing: return step_pieces();
    case Progress::repacking:
      if (!all_reached_mark()) return false;
      finish_packed();
      return true;
    case Progress::departing:
      if (!all_reached_mark() || somebody_went_back()) return false;
      progress_ = Progress::done;
      return true;
    case Progress::done: return false;
  }
  return false;
}

std::vector<int> HostRun::waiting_for() const {
  std::vector<int> late;
  if (progress_ == Progress::done) return late;
  std::uint64_t least = memory_.mark();
  for (int peer = 0; peer < memory_.size(); ++peer)
    least = std::min(least, memory_.of(peer).mark.load(std::memory_order_acquire));
  for (int peer = 0; peer < memory_.size(); ++peer) {
    if (peer == memory_.rank()) continue;
    const bool behind = progress_ == Progress::arriving
                            ? !memory_.arrived(peer, sequence_)
                            : memory_.of(peer).mark.load(std::memory_order_acquire) == least;
    if (behind) late.push_back(peer);
  }
  return late;
}

// It holds nothing of others: their memory is lent to it for as long as their lines stand. But they may hold
// what this rank's line has lent them, to write there.
void HostRun::abandon() {
  if (std::exchange(progress_, Progress::done) == Progress::done) return;
  const bool says_places = plan_.way().carrier != Carrier::line;
  if (says_places && (memory_.line(sequence_).access & kTargetMapped) != 0 &&
      output_.base != nullptr)
    memory_.withdraw(output_.base, output_.bytes);
}

// ---- working where the data lies

void HostRun::begin_work(const BoundForm& form) {
  working_ = &form;
  was_mapped_ = form.form->reach != schedule::Reach::readable;
  progress_ = Progress::working;
  find_buffers();
}

BufferPlaces HostRun::places_of(int peer) const {
  BufferPlaces places;
  std::memcpy(&places, memory_.line_of(peer, sequence_).payload, sizeof places);
  return places;
}

// Their owners have said that this rank has mapped them; should it not find one all the same, all
// would have to know, so that is a failure.
std::byte* HostRun::reach(int peer, bool target, std::size_t bytes) {
  const BufferPlaces places = places_of(peer);
  std::byte* there = memory_.reach(peer, target ? places.target : places.source, bytes);
  if (there == nullptr)
    failure_ = {Code::corrupt,
                fmt::format("memory of rank {} is not where it said that it is", peer),
                {memory_.rank(), peer, number_of(sequence_)}};
  return there;
}

// Finds all buffers that this rank is going to touch.
void HostRun::find_buffers() {
  const BoundPhase& phase = working_->phases[1];
  const bool by_kernel = working_->form->reach == schedule::Reach::readable;
  for (const BoundMove& move : phase.moves) {
    if (move.bytes == 0) continue;  // what has no bytes need not be anywhere
    if (move.action == HostAction::give)
      targets_[at(move.peer)] = reach(move.peer, true, move.to + move.bytes);
    if (move.action != HostAction::take) continue;
    if (by_kernel)
      addresses_[at(move.peer)] = places_of(move.peer).address;
    else
      sources_[at(move.peer)] = reach(move.peer, false, move.from + move.bytes);
  }
  if (!phase.has_fold || phase.fold.bytes == 0) return;
  for (const BoundFold::Operand& operand : phase.fold.operands)
    if (operand.peer != kLocal)
      sources_[at(operand.peer)] = reach(operand.peer, false, operand.from + phase.fold.bytes);
  for (const BoundFold::Put& put : phase.fold.puts)
    targets_[at(put.peer)] = reach(put.peer, true, put.to + phase.fold.bytes * growth_);
}

// One move at a time, a quantum of it; then the fold.
bool HostRun::step_work() {
  const BoundPhase& phase = working_->phases[1];
  const std::size_t moves = phase.moves.size();
  if (job_ < moves)
    move_part(phase.moves[job_]);
  else if (job_ == moves && phase.has_fold)
    fold_part(phase.fold);
  else
    leave(base_ + 1);
  return failure_.ok();
}

void HostRun::move_part(const BoundMove& move) {
  if (move.bytes == 0) {
    ++job_;
    return;
  }
  const bool gives = move.action == HostAction::give;
  const std::size_t first = gives ? move.split : 0;
  const std::size_t last = move.action == HostAction::take ? move.split : move.bytes;
  const std::size_t begin = first + at_;
  std::size_t end = std::min(last, begin + kQuantum);
  switch (move.action) {
    case HostAction::show: break;  // nothing is shown where it can be reached
    case HostAction::copy: copy_local(move, begin, end); break;
    case HostAction::give: {
      std::size_t run = end - begin;
      if (run > 0) {
        const std::byte* from = side(move.from_space).at(move.from + begin, run);
        reduce::copy(targets_[at(move.peer)] + move.to + begin, from, run, stores_);
      }
      end = begin + run;
      break;
    }
    case HostAction::take:
      if (working_->form->reach != schedule::Reach::readable)
        copy_out(side(move.to_space), move.to + begin, sources_[at(move.peer)] + move.from + begin,
                 end - begin);
      else if (!read_part(move, end))
        return;
      break;
  }
  at_ = end - first;
  if (end < last) return;
  at_ = 0;
  ++job_;
}

void HostRun::fold_part(const BoundFold& fold) {
  if (fold.bytes == 0) {
    ++job_;
    return;
  }
  const std::size_t end = std::min(fold.bytes, at_ + kQuantum);
  for (std::size_t o = 0; o < fold.operands.size(); ++o) {
    const BoundFold::Operand& operand = fold.operands[o];
    if (operand.peer != kLocal) found_[o] = sources_[at(operand.peer)] + operand.from + at_;
  }
  fold_range(fold, at_, end, nullptr);
  at_ = end;
  if (end == fold.bytes) ++job_;
}

// From at_ to `end`. False: the kernel refused.
bool HostRun::read_part(const BoundMove& take, std::size_t end) {
  for (std::size_t position = at_; position < end;) {
    std::size_t run = end - position;
    std::byte* to = side(take.to_space).at(take.to + position, run);
    const std::uint64_t address = addresses_[at(take.peer)] + take.from + position;
    if (!read_memory(memory_.process_of(take.peer), address, to, run)) {
      failure_ = {Code::peer_lost,
                  fmt::format("memory of rank {} can no longer be read: it ended, or freed its "
                              "buffer during the call",
                              take.peer),
                  {memory_.rank(), take.peer, number_of(sequence_)}};
      return false;
    }
    position += run;
  }
  return true;
}

// Nobody goes before all have come this far: they may be reading each other's memory.
void HostRun::leave(std::uint64_t mark) {
  reach_mark(mark);
  progress_ = Progress::departing;
}

void HostRun::reach_mark(std::uint64_t mark) {
  memory_.set_mark(mark);
  last_mark_ = mark;
  met_ = 0;
}

bool HostRun::all_reached_mark() {
  const int size = memory_.size();
  for (; met_ < size - 1; ++met_) {
    int peer = memory_.rank() + 1 + met_;
    if (peer >= size) peer -= size;
    if (!memory_.reached(peer, last_mark_)) return false;
  }
  return true;
}

// A rank that failed after it had come this far gave its buffers back to its caller, and took back
// its line before that. What was read since is nothing to rely on; its failure is on the way.
bool HostRun::somebody_went_back() const {
  std::atomic_thread_fence(std::memory_order_acquire);
  for (int peer = 0; peer < memory_.size(); ++peer)
    if (!memory_.arrived(peer, sequence_)) return true;
  return false;
}

// ---- bytes

void HostRun::copy_in(std::byte* to, const Side& from, std::size_t position,
                      std::size_t bytes) const {
  while (bytes > 0) {
    std::size_t run = bytes;
    const std::byte* piece = from.at(position, run);
    std::memcpy(to, piece, run);
    to += run;
    position += run;
    bytes -= run;
  }
}

void HostRun::copy_out(const Side& to, std::size_t position, const std::byte* from,
                       std::size_t bytes) const {
  while (bytes > 0) {
    std::size_t run = bytes;
    std::byte* piece = to.at(position, run);
    reduce::copy(piece, from, run, stores_);
    from += run;
    position += run;
    bytes -= run;
  }
}

void HostRun::copy_local(const BoundMove& move, std::size_t begin, std::size_t end) const {
  const Side& from = side(move.from_space);
  while (begin < end) {
    std::size_t run = end - begin;
    const std::byte* piece = from.at(move.from + begin, run);
    copy_out(side(move.to_space), move.to + begin, piece, run);
    begin += run;
  }
}

void HostRun::fold_range(const BoundFold& fold, std::size_t begin, std::size_t end,
                         std::byte* result) {
  if (tracer_ == nullptr || end - begin < trace::kLeastFold)
    return fold_untraced(fold, begin, end, result);
  const std::int64_t began = trace::now_ns();
  fold_untraced(fold, begin, end, result);
  tracer_->fold(channel_, number_of(sequence_), end - begin, began, trace::now_ns());
}

void HostRun::fold_untraced(const BoundFold& fold, std::size_t begin, std::size_t end,
                            std::byte* result) {
  const std::size_t element = size_of(launch_->dtype);
  const reduce::Folding folding{launch_->dtype, launch_->reduction, fold.finish,
                                memory_.size(), launch_->widens,    fold.balanced};
  const Side& to = side(fold.to_space);
  const std::size_t operands = fold.operands.size();
  for (std::size_t position = begin; position < end;) {
    std::size_t room = (end - position) * growth_;
    std::byte* target = to.at(fold.to + position * growth_, room);
    std::size_t run = room / growth_;
    for (std::size_t o = 0; o < operands; ++o) {
      const BoundFold::Operand& operand = fold.operands[o];
      const std::byte* data = operand.peer == kLocal
                                  ? side(operand.space).at(operand.from + position, run)
                                  : found_[o] + (position - begin);
      operands_[o] = {data, operand.raw};
    }
    destinations_.clear();
    destinations_.push_back(result != nullptr ? result + (position - begin) * growth_ : target);
    for (const BoundFold::Put& put : fold.puts)
      destinations_.push_back(targets_[at(put.peer)] + put.to + position * growth_);
    reduce::fold_to(folding, destinations_, std::span(operands_.data(), operands), run / element,
                    result != nullptr ? Stores::cached : stores_);
    // Peers read the result from a slot, so it is to stay in the cache; the caller's need not.
    if (result != nullptr) reduce::copy(target, destinations_[0], run * growth_, stores_);
    position += run;
  }
}

}  // namespace tutti::engine
