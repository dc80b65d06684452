#include "transport/memory_link.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>

#include "core/check.hpp"

namespace tutti::transport {
namespace {

// What a bell says, in Header::step.
enum BellKind : std::uint32_t { kLoansDone = 1, kRegionHere = 2, kRegionMapped = 3 };

// lease = 1 | index (15 bits) | generation (32 bits), never 0. Blocks of the arena follow the
// loans. Payloads that were copied out of the arena carry a lease of the pool with kPoolBit
// instead.
constexpr std::uint64_t kLeaseBit = std::uint64_t{1} << 63;
constexpr std::uint64_t kPoolBit = std::uint64_t{1} << 62;
constexpr std::uint64_t make_lease(std::size_t index, std::uint32_t generation) {
  return kLeaseBit | std::uint64_t{index} << 32 | generation;
}
constexpr std::size_t index_of(std::uint64_t lease) { return (lease & ~kLeaseBit) >> 32; }
constexpr std::uint32_t generation_of(std::uint64_t lease) {
  return static_cast<std::uint32_t>(lease);
}

// A region told to a peer in this process: it gets a share in the mapping, through a pointer that
// it owns from then on.
struct HandedRegion {
  std::uint64_t id = 0;
  std::shared_ptr<Mapping>* mapping = nullptr;
};

constexpr bool may_be_split(MessageKind kind) {
  return kind == MessageKind::data || kind == MessageKind::bulk;
}
constexpr bool is_control(MessageKind kind) {
  return !may_be_split(kind) && kind != MessageKind::eager;
}

// What of a lane's slots, blocks or loans messages of such a channel may occupy: each level of urgency leaves
// an eighth to those above it, so that they always find some.
std::size_t share_of(std::size_t all, Urgency urgency) {
  const auto levels = static_cast<std::size_t>(Urgency::urgent) - static_cast<std::size_t>(urgency);
  const std::size_t left = levels * std::max<std::size_t>(1, all / 8);
  return all > left ? all - left : 1;
}

// One poll takes at most this much, so that no peer starves the others.
constexpr int kTakeAtOnce = 32;
constexpr std::size_t kAcksPerBell = kInlineBytes / sizeof(std::uint64_t);
// The memory in which a payload lies bounds it, whatever that is.
constexpr std::uint64_t kMostBytes = std::numeric_limits<std::uint64_t>::max();

}  // namespace

MemoryLink::MemoryLink(Ends ends, RegionTable& regions, Log log, Visibility* visibility)
    : ends_(std::move(ends)),
      regions_(regions),
      log_(std::move(log)),
      visibility_(visibility),
      out_(ends_.mine->lane(ends_.lane_of_peer)),
      in_(ends_.theirs->lane(ends_.lane_of_self)),
      loans_(kLoans),
      block_leases_(ends_.mine->shape().blocks()) {
  free_loans_.reserve(kLoans);
  for (std::size_t i = kLoans; i > 0; --i) free_loans_.push_back(static_cast<std::uint16_t>(i - 1));
}

// ---- sending

Sent MemoryLink::send(const Header& given, const void* payload, std::size_t bytes,
                      std::uint64_t token) {
  Header header = given;
  header.flags &= static_cast<std::uint8_t>(~kHold);  // nothing is held back here
  if (down_.load(std::memory_order_acquire)) return {true, false, bytes};
  std::lock_guard lock(lock_);
  const Urgency urgency = urgencies_.differ() ? urgencies_.of(header.channel) : Urgency::urgent;
  // What was queued goes first: messages stay in order.
  const bool clear = drain() && has_room(share_of(kSlots, urgency));
  if (clear && bytes <= kInlineBytes) {
    publish(header, payload, bytes, bytes);
    return {true, false, bytes};
  }
  if (clear)
    if (const Sent sent = send_large(header, payload, bytes, token, urgency); sent.accepted)
      return sent;
  if (!is_control(header.kind)) return {};
  TUTTI_CHECK(bytes <= kMaxControlBytes);
  queue_.push_back({header, std::string(static_cast<const char*>(payload), bytes)});
  backlog_.store(true, std::memory_order_release);
  return {true, false, bytes};
}

Sent MemoryLink::send_large(const Header& header, const void* payload, std::size_t bytes,
                            std::uint64_t token, Urgency urgency) {
  if (may_be_split(header.kind)) {
    const MemoryRef where = share(payload, bytes);
    const bool may_lend = kLoans - free_loans_.size() < share_of(kLoans, urgency);
    if (where.region != 0 && may_lend) return send_lent(header, where, bytes, token);
    bytes = std::min<std::size_t>(bytes, ends_.mine->shape().large_bytes);
  }
  TUTTI_CHECK(bytes <= ends_.mine->shape().large_bytes);
  if (!send_copied(header, payload, bytes, urgency)) return {};
  return {true, false, bytes};
}

Sent MemoryLink::send_lent(const Header& header, const MemoryRef& where, std::size_t bytes,
                           std::uint64_t token) {
  const std::size_t index = free_loans_.back();
  free_loans_.pop_back();
  const std::uint64_t lease =
      make_lease(index, out_.generations[index].load(std::memory_order_relaxed));
  loans_[index] = {lease, token, header.channel, false};
  publish_note(header, {where.region, where.offset, lease}, bytes);
  return {true, true, bytes};
}

bool MemoryLink::send_copied(const Header& header, const void* payload, std::size_t bytes,
                             Urgency urgency) {
  const int block = take_block(bytes, urgency);
  if (block < 0) return false;
  const auto index = static_cast<std::size_t>(block);
  const std::uint64_t lease = make_lease(kLoans + index, 0);
  block_leases_[index] = lease;
  std::memcpy(ends_.mine->block(ends_.lane_of_peer, index), payload, bytes);
  const std::uint64_t offset = ends_.mine->shape().block_offset(ends_.lane_of_peer, index);
  publish_note(header, {kArenaRegion, offset, lease}, bytes);
  return true;
}

// The first free block that is large enough; -1: none. Small ones come first.
int MemoryLink::take_block(std::size_t bytes, Urgency urgency) {
  const auto find = [&](std::size_t first, std::size_t last) {
    int found = -1;
    std::size_t used = 0;
    for (std::size_t i = first; i < last; ++i)
      if (block_leases_[i] != 0)
        ++used;
      else if (found < 0)
        found = static_cast<int>(i);
    return used < share_of(last - first, urgency) ? found : -1;
  };
  const int small = bytes <= kSmallBytes ? find(0, kSmallBlocks) : -1;
  return small >= 0 ? small : find(kSmallBlocks, block_leases_.size());
}

// Whether fewer than `most` slots are in use.
bool MemoryLink::has_room(std::size_t most) {
  if (tail_ - consumed_seen_ >= most) {
    look_at_consumed();
    if (tail_ - consumed_seen_ >= most) {
      // Ask to be woken, then look again: the peer looks after it has taken something.
      out_.wants_room.exchange(1, std::memory_order_seq_cst);
      asked_for_room_.store(true, std::memory_order_relaxed);
      asked_for_ = std::max(asked_for_, most);
      look_at_consumed();
      if (tail_ - consumed_seen_ >= most) return false;
    }
  }
  // Whoever asked may have asked for more.
  if (asked_for_room_.load(std::memory_order_relaxed) && tail_ - consumed_seen_ < asked_for_) {
    asked_for_ = 0;
    asked_for_room_.store(false, std::memory_order_relaxed);
    out_.wants_room.store(0, std::memory_order_relaxed);
  }
  return true;
}

void MemoryLink::look_at_consumed() {
  const std::uint64_t consumed = in_.consumed.load(std::memory_order_seq_cst);
  if (consumed - consumed_seen_ > tail_ - consumed_seen_)
    distrust("word of messages that it cannot have taken");
  else
    consumed_seen_ = consumed;
}

// Publishes acknowledgements, then the queue. True when both are empty.
bool MemoryLink::drain() {
  if (!backlog_.load(std::memory_order_relaxed)) return true;
  while (!acks_.empty()) {
    if (!has_room(kSlots)) return false;
    const std::size_t count = std::min(acks_.size(), kAcksPerBell);
    send_bell(kLoansDone, acks_.data() + acks_.size() - count, count * sizeof(std::uint64_t));
    acks_.resize(acks_.size() - count);
  }
  for (; !queue_.empty(); queue_.pop_front()) {
    if (!has_room(kSlots)) return false;
    const auto& [header, payload] = queue_.front();
    if (payload.size() <= kInlineBytes)
      publish(header, payload.data(), payload.size(), payload.size());
    else if (!send_copied(header, payload.data(), payload.size(), Urgency::urgent))
      return false;
  }
  backlog_.store(false, std::memory_order_relaxed);
  return true;
}

void MemoryLink::send_bell(std::uint32_t what, const void* payload, std::size_t bytes) {
  Header header;
  header.kind = MessageKind::bell;
  header.step = what;
  publish(header, payload, bytes, bytes);
}

void MemoryLink::publish_note(const Header& header, const LoanNote& note,
                              std::size_t payload_bytes) {
  publish(header, &note, sizeof note, payload_bytes);
}

void MemoryLink::publish(Header header, const void* inlined, std::size_t bytes,
                         std::size_t payload_bytes) {
  Slot& slot = out_.slots[tail_ % kSlots];
  header.bytes = payload_bytes;
  slot.header = header;
  if (bytes != 0) std::memcpy(slot.payload, inlined, bytes);
  ++tail_;
  // An exchange, not a store: the look at the doorbell must not happen before it.
  slot.sequence.exchange(tail_, std::memory_order_seq_cst);
  knock(is_urgent(header.kind));
}

void MemoryLink::knock(bool urgent) {
  const std::uint32_t bell = ends_.theirs->head().doorbell.load(std::memory_order_seq_cst);
  const std::uint32_t state = bell & kDoorbellMask;
  if (state == kAwake || (state == kIdle && !urgent) || bell == rung_) return;
  rung_ = bell;
  ends_.theirs->ring();
}

void MemoryLink::rouse() {
  if (!is_asleep(*doorbell())) return;
  std::lock_guard lock(lock_);
  knock(false);
}

void MemoryLink::release(std::uint64_t lease) {
  if ((lease & kPoolBit) != 0) return pool_.release(lease & ~kPoolBit);
  if (lease == 0 || down_.load(std::memory_order_acquire)) return;
  if (auto* held = held_count(lease)) held->fetch_sub(1, std::memory_order_relaxed);
  std::lock_guard lock(lock_);
  acks_.push_back(lease);
  backlog_.store(true, std::memory_order_release);
  drain();
}

bool MemoryLink::flush() {
  if (!backlog_.load(std::memory_order_acquire)) return true;
  std::lock_guard lock(lock_);
  return drain();
}

void MemoryLink::tell_region(std::uint64_t id, std::shared_ptr<Mapping> mapping) {
  Header header;
  header.kind = MessageKind::bell;
  header.step = kRegionHere;
  const HandedRegion region{id, new std::shared_ptr<Mapping>(std::move(mapping))};
  (void)send(header, &region, sizeof region, 0);
}

void MemoryLink::tell_mapped(std::uint64_t id) {
  Header header;
  header.kind = MessageKind::bell;
  header.step = kRegionMapped;
  (void)send(header, &id, sizeof id, 0);
}

// ---- receiving

bool MemoryLink::next_is_there() const {
  const Slot& slot = in_.slots[head_ % kSlots];
  if (slot.sequence.load(std::memory_order_seq_cst) != head_ + 1) return false;
  return visibility_ == nullptr || visibility_->visible(ends_.peer, ends_.self, head_);
}

bool MemoryLink::poll(MessageSink& sink) {
  if (down_.load(std::memory_order_relaxed)) return false;
  if (given_up_) {
    flush();  // of what it shall read if it wakes up
    return false;
  }
  bool happened = take(sink);
  if (const char* flaw = flaw_.load(std::memory_order_acquire))
    return end(sink,
               Status(Code::corrupt,
                      fmt::format("rank {} cannot be understood: it sent {}", ends_.peer, flaw),
                      {ends_.self, ends_.peer, 0}));
  if (backlog_.load(std::memory_order_acquire)) flush();
  // Room counts as something that happened: whoever was refused may be about to sleep over it.
  if (asked_for_room_.load(std::memory_order_relaxed)) happened |= found_room();
  if (happened) return true;
  const bool left = ends_.theirs->head().departed.load(std::memory_order_acquire) != 0;
  if (!is_lost_ && !left) return false;
  // What was published before the end still counts.
  const Slot& slot = in_.slots[head_ % kSlots];
  if (slot.sequence.load(std::memory_order_acquire) == head_ + 1) return take(sink);
  return end(sink, !left ? lost_
                         : Status(Code::peer_lost, fmt::format("rank {} has left", ends_.peer),
                                  {ends_.self, ends_.peer, 0}));
}

// A peer that cannot be understood still reads: its groups hear the reason before the link is down.
bool MemoryLink::end(MessageSink& sink, const Status& why) {
  if (why.code() == Code::corrupt) sink.on_down(ends_.peer, why);
  down_.store(true, std::memory_order_release);
  if (why.code() != Code::corrupt) sink.on_down(ends_.peer, why);
  return true;
}

bool MemoryLink::found_room() {
  std::lock_guard lock(lock_);
  return asked_for_ > 0 && has_room(asked_for_);
}

void MemoryLink::set_urgency(std::uint32_t channel, Urgency urgency) {
  std::lock_guard lock(lock_);
  urgencies_.set(channel, urgency);
}

bool MemoryLink::take(MessageSink& sink) {
  int taken = 0;
  for (; taken < kTakeAtOnce && next_is_there() && flaw_.load(std::memory_order_relaxed) == nullptr;
       ++taken) {
    deliver(sink, in_.slots[head_ % kSlots]);
    ++head_;
  }
  if (taken == 0) return false;
  out_.consumed.exchange(head_, std::memory_order_seq_cst);
  if (in_.wants_room.load(std::memory_order_seq_cst) != 0 &&
      (ends_.theirs->head().doorbell.load(std::memory_order_seq_cst) & kDoorbellMask) != kAwake)
    ends_.theirs->ring();
  return true;
}

void MemoryLink::deliver(MessageSink& sink, const Slot& slot) {
  Header header;
  std::memcpy(&header, &slot.header, sizeof header);
  if (const char* flaw = flaw_in(header, kMostBytes)) return distrust(flaw);
  if (header.spare != 0) return distrust("a stream, of which memory has none");
  const bool is_inline = header.bytes <= kInlineBytes;
  alignas(16) std::byte inlined[kInlineBytes];
  std::memcpy(inlined, slot.payload, is_inline ? header.bytes : sizeof(LoanNote));
  if (header.kind == MessageKind::bell) return on_bell(sink, header, inlined);
  Payload payload;
  payload.data = inlined;
  if (!is_inline) {
    LoanNote note;
    std::memcpy(&note, inlined, sizeof note);
    if (const char* flaw = flaw_in_note(header, note)) return distrust(flaw);
    hold(note, header.bytes, payload);
    if (payload.data == nullptr) {
      if (reach({note.region, 0}, 0) != nullptr) return distrust("a payload outside of its region");
      // Only memory that was freed here while its owner still sent from it: nobody waits for this.
      log_.warn(Subsystem::shm, "dropped a {} message of rank {}: its memory is not mapped here",
                to_string(header.kind), ends_.peer);
      return release(payload.lease);
    }
  }
  sink.on_message(ends_.peer, header, payload);
}

// A lease names a loan of memory that was handed over, or a block of the arena: its own, and no more
// than it holds. Only data and bulk are lent.
const char* MemoryLink::flaw_in_note(const Header& header, const LoanNote& note) const {
  const WindowShape& shape = ends_.theirs->shape();
  const std::size_t index = index_of(note.lease);
  if ((note.lease & kLeaseBit) == 0 || index >= kLoans + shape.blocks())
    return "a lease that cannot be one";
  if (index < kLoans) {
    if (!may_be_split(header.kind) || note.region == kArenaRegion)
      return "a loan of what is never lent";
    return note.region == kDirectRegion && !ends_.same_process
               ? "an address of its own, which means nothing here"
               : nullptr;
  }
  const std::size_t block = index - kLoans;
  if (note.region != kArenaRegion || note.offset != shape.block_offset(ends_.lane_of_self, block) ||
      header.bytes > shape.block_bytes(block))
    return "a payload outside of its block";
  return nullptr;
}

// Which of the two counts a lease of the peer's arena is in; null for loans.
std::atomic<std::uint32_t>* MemoryLink::held_count(std::uint64_t lease) {
  const std::size_t index = index_of(lease);
  if (index < kLoans) return nullptr;
  return index < kLoans + kSmallBlocks ? &held_small_ : &held_large_;
}

// Makes the payload a view where it lies, or a copy if too much of the arena is held here already.
void MemoryLink::hold(const LoanNote& note, std::size_t bytes, Payload& payload) {
  payload.data = locate(note, bytes);
  payload.lease = note.lease;
  auto* held = held_count(note.lease);
  if (held == nullptr) return;
  const std::uint32_t before = held->fetch_add(1, std::memory_order_relaxed);
  const std::uint32_t most =
      held == &held_small_ ? kSmallBlocks / 2 : ends_.theirs->shape().large_blocks - 1;
  if (before < most || payload.data == nullptr) return;
  const BufferPool::Buffer buffer = pool_.take(bytes);
  std::memcpy(buffer.data, payload.data, bytes);
  release(note.lease);
  payload.data = buffer.data;
  payload.lease = kPoolBit | buffer.lease;
}

const std::byte* MemoryLink::locate(const LoanNote& note, std::size_t bytes) const {
  if (note.region != kArenaRegion) return reach({note.region, note.offset}, bytes);
  return ends_.theirs->at(note.offset);
}

void MemoryLink::on_bell(MessageSink& sink, const Header& header, const std::byte* payload) {
  std::uint64_t words[kAcksPerBell] = {};
  if (header.bytes <= sizeof words) std::memcpy(words, payload, header.bytes);
  switch (header.step) {
    case kRegionHere:
      // Its payload is an address, and only the own process's mean anything.
      if (!ends_.same_process || header.bytes != sizeof(HandedRegion)) break;
      return on_region(payload);
    case kRegionMapped:
      if (header.bytes != sizeof words[0]) break;
      return regions_.mark_mapped(ends_.peer, words[0]);
    case kLoansDone:
      if (header.bytes > sizeof words || header.bytes % sizeof words[0] != 0) break;
      for (std::size_t i = 0; i < header.bytes / sizeof words[0]; ++i) end_loan(sink, words[i]);
      return;
  }
  distrust("a bell that says nothing");
}

void MemoryLink::on_region(const std::byte* payload) {
  HandedRegion region;
  std::memcpy(&region, payload, sizeof region);
  const std::unique_ptr<std::shared_ptr<Mapping>> mapping(region.mapping);
  if (!regions_.add(ends_.peer, region.id, *mapping)) return distrust(kBadRegion);
  tell_mapped(region.id);
}

void MemoryLink::end_loan(MessageSink& sink, std::uint64_t lease) {
  const std::size_t index = index_of(lease);
  Loan ended;
  {
    std::lock_guard lock(lock_);
    const bool is_loan = index < kLoans;
    const bool is_known = is_loan || index - kLoans < block_leases_.size();
    const std::uint64_t given = !is_known ? 0
                                : is_loan ? loans_[index].lease
                                          : block_leases_[index - kLoans];
    if (given != lease || lease == 0) return distrust("a lease back that it did not have");
    if (!is_loan) {
      block_leases_[index - kLoans] = 0;
      return;
    }
    ended = std::exchange(loans_[index], Loan{});
    if (!ended.forgotten) out_.generations[index].fetch_add(1, std::memory_order_seq_cst);
    free_loans_.push_back(static_cast<std::uint16_t>(index));
  }
  if (!ended.forgotten) sink.on_sent(ended.token);
}

// ---- the rest

void MemoryLink::forget(std::uint32_t channel) {
  std::lock_guard lock(lock_);
  for (std::size_t i = 0; i < loans_.size(); ++i) {
    Loan& loan = loans_[i];
    if (loan.lease == 0 || loan.forgotten || loan.channel != channel) continue;
    loan.forgotten = true;
    // From here on the peer does not believe what it reads there.
    out_.generations[i].fetch_add(1, std::memory_order_seq_cst);
  }
}

bool MemoryLink::revoked(std::uint64_t lease) const {
  const std::size_t index = index_of(lease);
  if (lease == 0 || (lease & kPoolBit) != 0 || index >= kLoans) return false;
  // The caller's reads must not sink below this look.
  std::atomic_thread_fence(std::memory_order_acquire);
  return in_.generations[index].load(std::memory_order_relaxed) != generation_of(lease);
}

MemoryRef MemoryLink::share(const void* data, std::size_t bytes) const {
  if (ends_.same_process) return {kDirectRegion, reinterpret_cast<std::uintptr_t>(data)};
  return regions_.share(ends_.peer, data, bytes);
}

std::byte* MemoryLink::reach(const MemoryRef& ref, std::size_t bytes) const {
  if (ref.region == kDirectRegion && ends_.same_process)
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(ref.offset));
  return regions_.reach(ends_.peer, ref, bytes);
}

void MemoryLink::distrust(const char* what) {
  const char* none = nullptr;
  flaw_.compare_exchange_strong(none, what, std::memory_order_acq_rel);
}

bool MemoryLink::heard() {
  const std::uint64_t count = ends_.theirs->head().pulse.load(std::memory_order_relaxed);
  return std::exchange(pulse_seen_, count) != count || ends_.same_process;
}

void MemoryLink::give_up(MessageSink& sink, const Status& why) {
  if (given_up_ || down_.load(std::memory_order_relaxed)) return;
  given_up_ = true;
  sink.on_down(ends_.peer, why);
}

void MemoryLink::lose(Status why) {
  if (is_lost_) return;
  is_lost_ = true;
  lost_ = std::move(why);
}

void MemoryLink::depart() {
  {
    std::lock_guard lock(lock_);
    for (std::size_t i = 0; i < loans_.size(); ++i)
      if (loans_[i].lease != 0 && !loans_[i].forgotten)
        out_.generations[i].fetch_add(1, std::memory_order_seq_cst);
  }
  ends_.theirs->ring();
}

}  // namespace tutti::transport
