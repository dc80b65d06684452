#include "transport/ofi/ofi_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/check.hpp"

namespace tutti::transport::ofi {
namespace {

// What may be sent before the peer has arrived, as on tcp.
constexpr std::size_t kEagerBytes = 64 * 1024;
// What takes a few frames is there before a place could have been granted.
constexpr std::size_t kInFrames = 32 * 1024;
constexpr std::size_t kQueueBytes = std::size_t{4} << 20;
// What the fabric has of a link cannot be overtaken any more. So much keeps it busy.
constexpr int kFramesInFlight = 32;
constexpr std::size_t kLandingsInFlight = 4;
// A piece that is smaller is not worth a rail of its own.
constexpr std::size_t kLeastPiece = 32 * 1024;
// Frames of a peer that may be complete before one that was sent earlier.
constexpr std::size_t kMostEarly = 4096;
// How soon a link that waits for room looks again.
constexpr Nanoseconds kNapAtWork = std::chrono::milliseconds(1);
// A peer whose connection ends has died, or its last frames are still on their way.
constexpr Nanoseconds kQuiet = std::chrono::milliseconds(20);
// How long a rank that leaves waits for a peer that does not say that it has everything.
constexpr Nanoseconds kConfirmed = std::chrono::seconds(1);

// What comes while a rank leaves is for nobody.
class Deaf final : public MessageSink {
 public:
  std::byte* place(int, const Header&) override { return nullptr; }
  void on_message(int, const Header&, const Payload&) override {}
  void on_sent(std::uint64_t) override {}
  void on_down(int, const Status&) override {}
};

// A rail's descriptor only wakes: poll looks by itself.
class Waker final : public EventSource {
 public:
  void on_ready(std::uint32_t) override {}
};

Nanoseconds now() { return steady_clock().now(); }

Header first_of_pair(const std::byte* payload) {
  Header first;
  std::memcpy(static_cast<void*>(&first), payload, sizeof first);
  return first;
}

const char* flaw_of_pair(const FrameHeader& frame, const std::byte* payload) {
  constexpr const char* kBadLength = "two messages that are not as long as they say";
  if (frame.payload_bytes < sizeof(Header)) return kBadLength;
  const Header first = first_of_pair(payload);
  if (const char* flaw = flaw_in(first, kMaxControlBytes)) return flaw;
  if (const char* flaw = flaw_in(frame.header, kFramePayload)) return flaw;
  const std::uint64_t bytes = sizeof first + first.bytes + frame.header.bytes;
  return bytes == frame.payload_bytes ? nullptr : kBadLength;
}

iovec part_of(const void* data, std::size_t bytes) { return {const_cast<void*>(data), bytes}; }

}  // namespace

Result<std::unique_ptr<OfiLink>> OfiLink::create(std::shared_ptr<FabricPort> fabric, Ends ends,
                                                 ByteStream connection, Nanoseconds dead_after) {
  const int peer = ends.peer;
  std::unique_ptr<OfiLink> link(
      new OfiLink(std::move(fabric), std::move(ends), std::move(connection), dead_after));
  if (Status status = link->fabric_->join(*link, peer, link->ends_.agreement.addresses);
      !status.ok())
    return status;
  return link;
}

OfiLink::OfiLink(std::shared_ptr<FabricPort> fabric, Ends ends, ByteStream connection,
                 Nanoseconds dead_after)
    : fabric_(std::move(fabric)),
      ends_(std::move(ends)),
      inbox_(ends_.peer, *fabric_),
      tether_(std::move(connection), dead_after) {}

OfiLink::~OfiLink() { fabric_->leave(ends_.peer); }

Status OfiLink::watch(Reactor& reactor) {
  if (fabric_->is_driven_by(ends_.peer))
    for (const int descriptor : fabric_->descriptors()) {
      rail_events_.push_back(std::make_unique<Waker>());
      if (Status status = reactor.add(descriptor, *rail_events_.back()); !status.ok())
        return status;
    }
  return tether_.watch(reactor);
}

std::size_t OfiLink::eager_bytes() const { return kEagerBytes; }

// ---- sending

Sent OfiLink::send(const Header& given, const void* payload, std::size_t bytes,
                   std::uint64_t token) {
  if (down_.load(std::memory_order_acquire)) return {true, false, bytes};
  const bool splits = given.kind == MessageKind::data || given.kind == MessageKind::bulk;
  const bool control = !splits && given.kind != MessageKind::eager;
  if (splits)
    bytes = std::min(bytes, bytes <= kInFrames ? kFramePayload : ends_.agreement.landing_bytes);
  TUTTI_CHECK(bytes <= (control ? kMaxControlBytes : ends_.agreement.landing_bytes));
  Outgoing message;
  message.header = given;
  message.token = token;
  message.header.bytes = bytes;
  message.header.spare = 0;
  const bool hold = (given.flags & kHold) != 0;
  message.header.flags &= static_cast<std::uint8_t>(~kHold);

  std::lock_guard lock(lock_);
  message.urgency = urgencies_.of(given.channel);
  if (!control && outbox_.bytes_before(message.urgency) >= kQueueBytes) return {};
  if (bytes > kFramePayload) return send_large(std::move(message), payload, splits);
  // Nothing waits: it goes from where it lies.
  const bool at_once = outbox_.empty() && prepared_ == nullptr && may_post();
  const bool waits = at_once && hold && !held_ && control;
  if (at_once && !waits && prepare_message(message.header, payload, bytes)) {
    if (!post_prepared()) has_work_.store(true, std::memory_order_release);
    return {true, false, bytes};
  }
  message.copy.assign(static_cast<const char*>(payload), bytes);
  if (waits) {
    held_ = std::move(message);
    has_work_.store(true, std::memory_order_release);
    return {true, false, bytes};
  }
  push(std::move(message));
  pump();
  return {true, false, bytes};
}

// Behind what was held.
void OfiLink::push(Outgoing message) {
  if (held_) outbox_.push(*std::exchange(held_, std::nullopt));
  outbox_.push(std::move(message));
}

// Lent even if it was copied: whoever waits for it polls until it has left, for nobody else may.
Sent OfiLink::send_large(Outgoing message, const void* payload, bool may_lend) {
  const std::size_t bytes = message.header.bytes;
  message.lent = may_lend;
  if (may_lend) message.payload = fabric_->region_of(payload, bytes);
  if (!message.payload) {
    message.payload = fabric_->take_landing();
    if (!message.payload) return {};
    std::memcpy(message.payload.data, payload, bytes);
  }
  push(std::move(message));
  pump();
  return {true, may_lend, bytes};
}

void OfiLink::set_urgency(std::uint32_t channel, Urgency urgency) {
  std::lock_guard lock(lock_);
  urgencies_.set(channel, urgency);
}

bool OfiLink::may_post() const { return broken_.ok() && in_flight_ < kFramesInFlight; }

// A frame gets its number here: from now on nothing passes it.
bool OfiLink::prepare(FrameKind kind, const Header& header, std::span<const iovec> payload) {
  RailTask* frame = fabric_->take_frame();
  if (frame == nullptr) return false;
  std::byte* const data = frame->frame.data + sizeof(FrameHeader);
  std::size_t bytes = 0;
  for (const iovec& part : payload) {
    if (part.iov_len > 0) std::memcpy(data + bytes, part.iov_base, part.iov_len);
    bytes += part.iov_len;
  }
  FrameHeader sealed;
  sealed.header = header;
  sealed.sender = static_cast<std::uint32_t>(ends_.self);
  sealed.kind = kind;
  sealed.number = sent_++;
  sealed.payload_bytes = static_cast<std::uint32_t>(bytes);
  sealed.close(ends_.agreement.send_key, data);
  std::memcpy(frame->frame.data, &sealed, sizeof sealed);
  frame->peer = ends_.peer;
  frame->bytes = sizeof sealed + bytes;
  prepared_ = frame;
  return true;
}

// One message, with the one that was held, if there is one: both leave in one frame.
bool OfiLink::prepare_message(const Header& header, const void* payload, std::size_t bytes) {
  const iovec own = part_of(payload, bytes);
  if (!held_) return prepare(FrameKind::message, header, {&own, 1});
  const iovec both[] = {part_of(&held_->header, sizeof(Header)),
                        part_of(held_->copy.data(), held_->copy.size()), own};
  if (!prepare(FrameKind::pair, header, both)) return false;
  held_.reset();
  return true;
}

void OfiLink::flush_held() {
  if (!has_work_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(lock_);
  pump();
}

// Grants first: peers wait for them. They pass the bound, as there are few.
bool OfiLink::prepare_next() {
  if (!grants_.empty()) {
    const iovec grant = part_of(&grants_.front(), grants_.front().bytes());
    if (!prepare(FrameKind::grant, {}, {&grant, 1})) return false;
    grants_.pop_front();
    return true;
  }
  if (outbox_.empty() || !may_post()) return false;
  const Outgoing& next = outbox_.front();
  if (!next.large()) {
    const iovec payload = part_of(next.copy.data(), next.copy.size());
    if (!prepare(FrameKind::message, next.header, {&payload, 1})) return false;
    (void)outbox_.pop();
    return true;
  }
  if (large_in_flight_ >= kLandingsInFlight * ends_.agreement.landing_bytes) return false;
  const std::size_t most = std::max<std::size_t>(next.header.bytes / kLeastPiece, 1);
  const LargeNotice announcement{next_transfer_,
                                 static_cast<std::uint32_t>(std::min(most, rails()))};
  const iovec note = part_of(&announcement, sizeof announcement);
  if (!prepare(FrameKind::announce, next.header, {&note, 1})) return false;
  ++next_transfer_;
  large_in_flight_ += next.header.bytes;
  Transfer& transfer = transfers_[announcement.transfer];
  transfer.message = outbox_.pop();
  transfer.number = announcement.transfer;
  transfer.pieces = announcement.pieces;
  return true;
}

bool OfiLink::post_prepared() {
  Status why;
  switch (fabric_->post(*prepared_, why)) {
    case Posted::yes:
      prepared_ = nullptr;
      ++in_flight_;
      return true;
    case Posted::no_room: return false;
    case Posted::failed: broken_ = why; return false;
  }
  return false;
}

void OfiLink::pump() {
  if (held_) outbox_.push(*std::exchange(held_, std::nullopt));
  while (broken_.ok() && (prepared_ != nullptr || prepare_next()) && post_prepared()) {
  }
  bool waits = prepared_ != nullptr || !outbox_.empty() || !grants_.empty() || !broken_.ok();
  for (auto& [number, transfer] : transfers_) {
    if (!transfer.granted || transfer.posted == transfer.pieces) continue;
    post_writes(transfer);
    waits |= transfer.posted < transfer.pieces;
  }
  has_work_.store(waits || !completed_.empty(), std::memory_order_release);
}

void OfiLink::post_writes(Transfer& transfer) {
  const std::size_t bytes = transfer.message.header.bytes;
  const std::size_t piece = (bytes / transfer.pieces + 63) / 64 * 64;
  while (broken_.ok() && transfer.posted < transfer.pieces) {
    const std::size_t rail = transfer.posted;
    const std::size_t offset = rail * piece;
    const std::size_t last = rail + 1 == transfer.pieces ? bytes - offset : piece;
    const Posted posted = fabric_->post_write(ends_.peer, transfer.number, rail, transfer.grant,
                                              transfer.message.payload, offset, last, broken_);
    if (posted != Posted::yes) return;
    ++transfer.posted;
  }
}

void OfiLink::on_frame_out() {
  std::lock_guard lock(lock_);
  --in_flight_;
}

void OfiLink::on_written(std::uint32_t number) {
  std::lock_guard lock(lock_);
  const auto found = transfers_.find(number);
  if (found == transfers_.end()) return;
  Transfer& transfer = found->second;
  if (++transfer.written < transfer.pieces) return;
  const Outgoing& message = transfer.message;
  large_in_flight_ -= message.header.bytes;
  if (message.payload.slot != 0) fabric_->release_landing(message.payload.slot);
  if (message.lent) completed_.push_back({message.header.channel, message.token});
  transfers_.erase(found);
  has_work_.store(true, std::memory_order_release);
}

void OfiLink::on_broken(const Status& why) {
  std::lock_guard lock(lock_);
  if (broken_.ok()) broken_ = why;
  has_work_.store(true, std::memory_order_release);
}

// ---- receiving

const char* OfiLink::flaw_of(const FrameHeader& frame, const std::byte* payload) const {
  switch (frame.kind) {
    case FrameKind::message:
      if (frame.header.bytes != frame.payload_bytes)
        return "a message that is not as long as it says";
      return flaw_in(frame.header, kFramePayload);
    case FrameKind::pair: return flaw_of_pair(frame, payload);
    case FrameKind::announce:
      if (frame.payload_bytes != sizeof(LargeNotice)) return "an announcement that is none";
      return flaw_in(frame.header, ends_.agreement.landing_bytes);
    case FrameKind::grant:
      return is_length_of_grant(frame.payload_bytes) ? nullptr : "a grant that is none";
  }
  return "a frame of a kind that there is not";
}

void OfiLink::on_frame(const FrameHeader& frame, const std::byte* payload, MessageSink& sink) {
  // A stranger's, or one that was heard before: as if it had not come.
  if (frame.seal != frame.seal_by(ends_.agreement.receive_key) || frame.number < received_) return;
  if (down_.load(std::memory_order_relaxed) || flaw_ != nullptr) return;
  if (crc32c(payload, frame.payload_bytes) != frame.payload_check)
    flaw_ = "a frame that does not fit its checksum: the fabric damages data";
  else if (frame.number > received_)
    keep_early(frame, payload);
  else
    take(frame, payload, sink);
  while (flaw_ == nullptr && !early_.empty() && early_.begin()->first == received_) {
    const EarlyFrame next = std::move(early_.begin()->second);
    early_.erase(early_.begin());
    take(next.header, reinterpret_cast<const std::byte*>(next.payload.data()), sink);
  }
}

// Sends are matched in order, but a large one may be complete after a small one that followed it.
void OfiLink::keep_early(const FrameHeader& frame, const std::byte* payload) {
  if (early_.size() >= kMostEarly)
    flaw_ = "frames that go on though one is missing: the fabric has lost it";
  else
    early_.try_emplace(frame.number,
                       EarlyFrame{frame, std::string(reinterpret_cast<const char*>(payload),
                                                     frame.payload_bytes)});
}

void OfiLink::take(const FrameHeader& frame, const std::byte* payload, MessageSink& sink) {
  flaw_ = flaw_of(frame, payload);
  if (flaw_ != nullptr) return;
  ++received_;
  quiet_since_ = Nanoseconds(0);
  if (frame.kind == FrameKind::grant) return take_grant(payload, frame.payload_bytes);
  if (given_up_.load(std::memory_order_relaxed)) return;
  if (frame.kind == FrameKind::announce) return take_announcement(frame, payload, sink);
  if (frame.kind == FrameKind::pair) {
    const Header first = first_of_pair(payload);
    inbox_.take(first, payload + sizeof first, sink);
    payload += sizeof first + first.bytes;
  }
  inbox_.take(frame.header, payload, sink);
}

void OfiLink::take_announcement(const FrameHeader& frame, const std::byte* payload,
                                MessageSink& sink) {
  LargeNotice announcement;
  std::memcpy(&announcement, payload, sizeof announcement);
  if (announcement.pieces == 0 || announcement.pieces > rails()) {
    flaw_ = "a payload in more pieces than there are rails";
    return;
  }
  const auto grant = inbox_.make_place(frame.header, announcement, sink);
  if (!grant.ok()) return on_broken(grant.status());
  std::lock_guard lock(lock_);
  grants_.push_back(*grant);
  pump();
}

void OfiLink::take_grant(const std::byte* payload, std::size_t bytes) {
  Grant grant;
  std::memcpy(&grant, payload, bytes);
  std::lock_guard lock(lock_);
  const auto found = transfers_.find(grant.transfer);
  if (found == transfers_.end() || found->second.granted) {
    flaw_ = "a grant that nobody asked for";
    return;
  }
  found->second.grant = grant;
  found->second.granted = true;
  pump();
}

bool OfiLink::ready() const {
  if (fabric_->is_driven_by(ends_.peer)) return true;
  if (down_.load(std::memory_order_relaxed)) return false;
  return has_work_.load(std::memory_order_acquire) || tether_.readable() || tether_.closed() ||
         tether_.end().has_value() || flaw_ != nullptr;
}

bool OfiLink::poll(MessageSink& sink) {
  bool happened = fabric_->is_driven_by(ends_.peer) && fabric_->poll(sink);
  if (down_.load(std::memory_order_relaxed)) return happened;
  happened |= tether_.read();
  if (has_work_.load(std::memory_order_acquire)) {
    std::unique_lock lock(lock_);
    const std::uint64_t before = sent_;
    pump();
    happened |= sent_ != before;
    lock.unlock();
    happened |= complete(sink);
  }
  return judge_end(sink) || happened;
}

bool OfiLink::complete(MessageSink& sink) {
  std::vector<Completion> completed;
  {
    std::lock_guard lock(lock_);
    completed.swap(completed_);
  }
  if (given_up_.load(std::memory_order_relaxed)) return false;
  for (const Completion& done : completed) sink.on_sent(done.token);
  return !completed.empty();
}

void OfiLink::forget(std::uint32_t channel) {
  inbox_.forget(channel);
  std::lock_guard lock(lock_);
  const auto keep = [&](Outgoing& message, bool on_its_way) {
    if (message.header.channel != channel || !std::exchange(message.lent, false)) return;
    const bool copied = message.payload.slot != 0 || !message.large();
    Place copy = copied || on_its_way ? Place() : fabric_->take_landing();
    if (!copy) return;  // symmetric memory stays mapped for as long as it is being read
    std::memcpy(copy.data, message.payload.data, message.header.bytes);
    message.payload = std::move(copy);
  };
  for (Outgoing& message : outbox_.all()) keep(message, false);
  for (auto& [number, transfer] : transfers_) keep(transfer.message, transfer.posted > 0);
  std::erase_if(completed_, [&](const Completion& done) { return done.channel == channel; });
}

// ---- the end

bool OfiLink::confirm_end() {
  if (!tether_.end() || received_ < *tether_.end() || inbox_.expects()) return false;
  tether_.confirm();
  return true;
}

bool OfiLink::judge_end(MessageSink& sink) {
  if (given_up_.load(std::memory_order_relaxed)) return false;
  if (flaw_ != nullptr) {
    go_down(sink, Code::corrupt, fmt::format("it sent {}", flaw_));
    return true;
  }
  Status broken;
  if (has_work_.load(std::memory_order_acquire)) {
    std::lock_guard lock(lock_);
    broken = broken_;
  }
  if (tether_.closed() && quiet_since_ == Nanoseconds(0)) quiet_since_ = now();
  const bool quiet = tether_.closed() && now() - quiet_since_ > kQuiet;
  if (confirm_end() || quiet) {
    go_down(sink, Code::peer_lost, "it closed its connection");
    return true;
  }
  if (broken.ok() || tether_.closed()) return false;
  go_down(sink, Code::peer_lost, broken.message());
  return true;
}

void OfiLink::go_down(MessageSink& sink, Code code, const std::string& why) {
  const bool misunderstood = code == Code::corrupt;
  const char* verb = misunderstood ? "cannot be understood" : "is gone";
  const Status status(code,
                      fmt::format("rank {} ({}) {}: {}", ends_.peer, ends_.whereabouts, verb, why),
                      {ends_.self, ends_.peer, 0});
  inbox_.close();
  // A peer that cannot be understood still reads: its groups hear the reason.
  if (misunderstood) return give_up(sink, status);
  down_.store(true, std::memory_order_release);
  {
    std::lock_guard lock(lock_);
    outbox_.clear();
    grants_.clear();
    completed_.clear();
    has_work_.store(false, std::memory_order_relaxed);
  }
  tether_.shut();
  sink.on_down(ends_.peer, status);
}

void OfiLink::give_up(MessageSink& sink, const Status& why) {
  if (down_.load(std::memory_order_relaxed) || given_up_.exchange(true)) return;
  inbox_.close();
  sink.on_down(ends_.peer, why);
}

bool OfiLink::is_all_out() {
  std::lock_guard lock(lock_);
  pump();
  return !broken_.ok() || (outbox_.empty() && grants_.empty() && prepared_ == nullptr &&
                           in_flight_ == 0 && transfers_.empty());
}

// Also of a rank that polls nothing for a while: connections are made, and what was lost is sent again.
void OfiLink::beat() {
  if (down_.load(std::memory_order_acquire)) return;
  tether_.beat();
  fabric_->nudge();
  std::lock_guard lock(lock_);
  pump();
}

bool OfiLink::flush() {
  if (down_.load(std::memory_order_relaxed)) return true;
  if (leaving_since_ == Nanoseconds(0)) leaving_since_ = now();
  Deaf deaf;
  (void)fabric_->poll(deaf);
  (void)tether_.read(true);
  const bool all_out = is_all_out();
  if (given_up_.load(std::memory_order_relaxed)) return true;
  if (all_out && !std::exchange(said_end_, true)) tether_.say_end(sent_);
  (void)confirm_end();
  return all_out;
}

// A payload that the peer never grants a place holds nobody: it does not poll, or has given the group up.
bool OfiLink::has_arrived() {
  if (down_.load(std::memory_order_relaxed) || given_up_.load(std::memory_order_relaxed))
    return true;
  (void)flush();
  if (tether_.confirmed() || tether_.closed()) return true;
  std::lock_guard lock(lock_);
  return prepared_ == nullptr && in_flight_ == 0 && now() - leaving_since_ > kConfirmed;
}

// ---- beside the messages

Nanoseconds OfiLink::longest_nap(bool idle) {
  Nanoseconds nap = Nanoseconds::max();
  if (fabric_->is_driven_by(ends_.peer)) nap = fabric_->longest_nap(idle);
  return has_work_.load(std::memory_order_acquire) ? std::min(nap, kNapAtWork) : nap;
}

void OfiLink::add_region(std::uint64_t id, const MemoryRegion& region, int file) {
  fabric_->add_region(id, region.data, region.bytes, file);
}

}  // namespace tutti::transport::ofi
