#include "engine/point_to_point.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/clock.hpp"
#include "core/exhausted.hpp"

namespace tutti::engine {

using transport::Header;
using transport::header_for;
using transport::Link;
using transport::MessageKind;

namespace {

// Eager messages that a receiver keeps for one peer before they wait at the sender. With 16 KiB
// each at most (tcp), that is 1 MiB a pair.
constexpr int kCredits = 64;
// With the credits it bounds what a receiver keeps for each peer.
constexpr std::size_t kEagerBytes = 16 * 1024;
constexpr std::size_t kMessageQuantumBytes = 256 * 1024;

}  // namespace

PointToPoint::PointToPoint(GroupView& group, int rank, int size, std::string group_name)
    : group_(group),
      rank_(rank),
      group_name_(std::move(group_name)),
      credits_(static_cast<std::size_t>(size), kCredits),
      owed_(static_cast<std::size_t>(size), 0),
      kept_(static_cast<std::size_t>(size), 0),
      last_id_(static_cast<std::size_t>(size), 0) {}

bool PointToPoint::matches(const Posting& posting, int peer, const Header& header) {
  return (posting.peer == peer || posting.peer < 0) && posting.tag == header.tag &&
         posting.internal == ((header.flags & transport::kInternal) != 0);
}

void PointToPoint::post(Posting&& posting) {
  if (posting.device && posting.batch) ++on_device_;
  some_wait_ |= waits(posting);
  if (!posting.is_send) {
    // Whoever waits for a rank is to hear of its end, also where they have not talked yet.
    if (posting.peer >= 0 && posting.peer != rank_) group_.link_to(posting.peer).open();
    if (some_wait_) return posted_.push_back(std::move(posting));
    for (auto at = unexpected_.begin(); at != unexpected_.end(); ++at) {
      if (!matches(posting, at->peer, at->header)) continue;
      Unexpected message = *at;
      unexpected_.erase(at);
      match(std::move(posting), std::move(message));
      return;
    }
    posted_.push_back(std::move(posting));
    return;
  }
  Sending& sending = sends_.emplace_back();
  sending.posting = std::move(posting);
}

bool PointToPoint::step(Nanoseconds now) {
  bool moved = some_wait_ && admit();
  // A peer's messages leave in order: once one has to wait, those behind it do too.
  std::vector<bool> held(credits_.size(), false);
  std::vector<std::pair<int, std::uint32_t>> waiting;  // likewise with one tag, for other works
  const auto is_behind = [&](const Posting& posting) {
    return !posting.internal && std::find(waiting.begin(), waiting.end(),
                                          std::pair(posting.peer, posting.tag)) != waiting.end();
  };
  for (auto at = sends_.begin(); at != sends_.end();) {
    Sending& sending = *at;
    const auto peer = static_cast<std::size_t>(sending.posting.peer);
    bool over = false;
    if (sending.state == State::fresh && waits(sending.posting))
      waiting.emplace_back(sending.posting.peer, sending.posting.tag);
    if (sending.state == State::fresh && !held[peer] && !is_behind(sending.posting)) {
      over = start(sending);
      if (!over && sending.state == State::fresh) held[peer] = true;
      moved |= sending.state != State::fresh || over;
    }
    if (sending.state == State::fetching && fetch(sending)) sending.state = State::streaming;
    if (!over && sending.state == State::streaming) over = stream(sending), moved |= over;
    at = over ? sends_.erase(at) : std::next(at);
  }
  for (auto at = active_.begin(); at != active_.end();) {
    const std::size_t before = at->second.done;
    const bool over = receive(at->first, at->second);
    moved |= over || at->second.done != before;
    at = over ? active_.erase(at) : std::next(at);
  }
  if (!moved) moved = expire(now);
  return moved;
}

// Receives that wait no longer, and those that waited behind them, meet what has come meanwhile.
bool PointToPoint::admit() {
  bool moved = false;
  some_wait_ = false;
  for (const Sending& sending : sends_) {
    if (sending.state == State::fresh) look_for_failed_works(sending.posting);
    some_wait_ |= sending.state == State::fresh && waits(sending.posting);
  }
  for (auto at = posted_.begin(); at != posted_.end();) {
    look_for_failed_works(*at);
    some_wait_ |= waits(*at);
    const auto met = waits(*at) ? unexpected_.end() : first_for(at);
    if (met == unexpected_.end()) {
      ++at;
      continue;
    }
    Posting posting = std::move(*at);
    Unexpected message = std::move(*met);
    at = posted_.erase(at);
    unexpected_.erase(met);
    match(std::move(posting), std::move(message));
    moved = true;
  }
  return moved;
}

// The first message for a receive that is not for one before it.
std::list<PointToPoint::Unexpected>::iterator PointToPoint::first_for(
    std::list<Posting>::iterator posting) {
  return std::find_if(unexpected_.begin(), unexpected_.end(), [&](const Unexpected& message) {
    const auto first = std::find_if(posted_.begin(), posted_.end(), [&](const Posting& each) {
      return matches(each, message.peer, message.header);
    });
    return first == posting;
  });
}

void PointToPoint::look_for_failed_works(const Posting& posting) {
  if (!posting.batch || !posting.batch->after) return;
  const Status failure = posting.batch->after->failure();
  if (failure.ok() || !failure_.ok()) return;
  failure_ = {
      failure.code(),
      fmt::format("a {} of rank {} on group '{}' comes after an operation that failed: {}",
                  posting.is_send ? "send" : "receive", rank_, group_name_, failure.message()),
      {rank_, -1, 0}};
}

// Whether a message on device memory can leave: the caller's stream has come to it, and it is on the host
// unless its receiver may take it from the device.
bool PointToPoint::prepare(Sending& sending) {
  Posting& posting = sending.posting;
  if (sending.prepared || !posting.device) return true;
  const auto ready = posting.device->is_ready();
  if (!ready.ok()) failure_ = ready.status();
  if (!ready.ok() || !*ready) return false;
  const bool near = posting.peer != rank_ && group_.link_to(posting.peer).shares_memory();
  if (near && !sending.fetches)
    sending.offered = posting.device->offer(group_.world_rank(posting.peer), group_.channel());
  return sending.prepared = sending.offered.has_value() || fetch(sending);
}

bool PointToPoint::fetch(Sending& sending) {
  Posting& posting = sending.posting;
  Status status;
  if (!sending.fetches) status = posting.device->fetch();
  sending.fetches = true;
  const auto copied = status.ok() ? posting.device->is_copied() : Result<bool>(status);
  if (!copied.ok()) failure_ = copied.status();
  if (!copied.ok() || !*copied) return false;
  posting.data = posting.device->pinned();
  return true;
}

// Sends a fresh message eagerly, or its request. True when it is over.
bool PointToPoint::start(Sending& sending) {
  if (!prepare(sending)) return false;
  const Posting& posting = sending.posting;
  if (sending.id == 0) sending.id = next_id_++;
  Header header = header_for(MessageKind::request, group_.channel(), sending.id);
  header.tag = posting.tag;
  header.extra = posting.bytes;
  if (posting.internal) header.flags |= transport::kInternal;
  if (posting.peer == rank_) {
    sending.state = State::requested;
    deliver_request(rank_, header, {});
    return false;
  }
  if (sending.offered) {
    header.flags |= transport::kOffered;
    if (group_.link_to(posting.peer)
            .send(header, &*sending.offered, sizeof *sending.offered, 0)
            .accepted)
      sending.state = State::requested;
    return false;
  }
  if (start_eagerly(sending, header)) return stream(sending);
  if (group_.link_to(posting.peer).send(header, nullptr, 0, 0).accepted)
    sending.state = State::requested;
  return false;
}

// As far as the pair's credits and the link's room reach; a message beyond that asks first, so that
// it never holds up the ones behind it.
bool PointToPoint::start_eagerly(Sending& sending, Header header) {
  const Posting& posting = sending.posting;
  Link& link = group_.link_to(posting.peer);
  int& credits = credits_[static_cast<std::size_t>(posting.peer)];
  if (posting.bytes > std::min(link.eager_bytes(), kEagerBytes) || credits == 0) return false;
  header.kind = MessageKind::eager;
  sending.in_flight.store(1, std::memory_order_relaxed);
  const auto sent = link.send(header, posting.data, posting.bytes,
                              reinterpret_cast<std::uint64_t>(&sending.in_flight));
  if (!sent.lent) sending.in_flight.store(0, std::memory_order_relaxed);
  if (!sent.accepted) return false;
  --credits;
  sending.issued = posting.bytes;
  sending.state = State::streaming;  // over as soon as the link lets go of the payload
  return true;
}

// Sends what is left. True when it is over.
bool PointToPoint::stream(Sending& sending) {
  const Posting& posting = sending.posting;
  while (sending.issued < posting.bytes) {
    Header header = header_for(MessageKind::bulk, group_.channel(), sending.id);
    header.offset = sending.issued;
    sending.in_flight.fetch_add(1, std::memory_order_relaxed);
    const auto sent =
        group_.link_to(posting.peer)
            .send(header, posting.data + sending.issued, posting.bytes - sending.issued,
                  reinterpret_cast<std::uint64_t>(&sending.in_flight));
    if (!sent.lent) sending.in_flight.fetch_sub(1, std::memory_order_relaxed);
    if (!sent.accepted) return false;
    sending.issued += sent.bytes;
  }
  if (sending.in_flight.load(std::memory_order_acquire) != 0) return false;
  finish(posting, {});
  return true;
}

bool PointToPoint::receive(const Key& key, Receiving& receiving) {
  if (receiving.way != Way::moving) return receive_on_device(key, receiving);
  std::size_t budget = kMessageQuantumBytes;
  while (!receiving.queue.empty() && budget > 0) {
    Segment& segment = receiving.queue.front();
    const std::size_t bytes = std::min<std::size_t>(segment.bytes - segment.used, budget);
    std::memcpy(receiving.posting.data + receiving.done, segment.data(), bytes);
    segment.used += bytes;
    receiving.done += bytes;
    budget -= bytes;
    if (segment.used < segment.bytes) continue;
    if (segment.lease != 0) {
      Link& link = group_.link_to(key.first);
      // A view that its owner took back is not believed; the owner's abort is on its way.
      receiving.tainted |= link.revoked(segment.lease);
      link.release(segment.lease);
    }
    receiving.queue.pop();
  }
  if (receiving.done < receiving.total || receiving.tainted) return false;
  if (receiving.posting.device) {
    receiving.way = Way::storing;
    return false;
  }
  finish(receiving.posting, {}, {key.first, receiving.posting.tag, receiving.total});
  return true;
}

// Begins what the device has to do, when the caller's stream has come to it. One that cannot reach the
// sender's memory after all has the message sent.
bool PointToPoint::begin_copy(Receiving& receiving, const Key& key) {
  DeviceEnd& device = *receiving.posting.device;
  const auto ready = device.is_ready();
  if (!ready.ok()) failure_ = ready.status();
  if (!ready.ok() || !*ready) return false;
  if (receiving.way == Way::taking) {
    const Status taken =
        device.take(group_.world_rank(key.first), receiving.offered, receiving.total);
    if (taken.ok()) return true;
    receiving.way = Way::moving;
    receiving.posting.data = device.pinned();
    failure_ = device.trouble();
    answer(key.first, key.second, 0);
    return false;
  }
  failure_ = device.store(receiving.total);
  return failure_.ok();
}

bool PointToPoint::receive_on_device(const Key& key, Receiving& receiving) {
  if (!receiving.copies) receiving.copies = begin_copy(receiving, key);
  if (!receiving.copies) return false;
  const auto copied = receiving.posting.device->is_copied();
  if (!copied.ok()) failure_ = copied.status();
  if (!copied.ok() || !*copied) return false;
  if (receiving.way == Way::taking) answer(key.first, key.second, transport::kTaken);
  finish(receiving.posting, {}, {key.first, receiving.posting.tag, receiving.total});
  return true;
}

// A message is there: on the device, when it has been copied.
void PointToPoint::land(const Key& key, Posting posting, std::size_t bytes, std::uint32_t tag) {
  if (!posting.device) return finish(posting, {}, {key.first, tag, bytes});
  posting.tag = tag;
  Receiving& receiving = active_[key];
  receiving.posting = std::move(posting);
  receiving.total = receiving.done = bytes;
  receiving.way = Way::storing;
}

void PointToPoint::answer(int peer, std::uint64_t id, std::uint8_t flags) {
  Header header = header_for(MessageKind::ready, group_.channel(), id);
  header.flags = flags;
  (void)group_.link_to(peer).send(header, nullptr, 0, 0);
}

Status PointToPoint::deliver(int peer, const Header& header, Segment segment) {
  if (const char* flaw = flaw_in(peer, header)) {
    if (segment.lease != 0) group_.link_to(peer).release(segment.lease);
    return {Code::corrupt,
            fmt::format("rank {} sent {} (message {}) on group '{}'", peer, flaw, header.sequence,
                        group_name_),
            {rank_, peer, 0}};
  }
  switch (header.kind) {
    case MessageKind::credit:
      credits_[static_cast<std::size_t>(peer)] += static_cast<int>(header.extra);
      break;
    case MessageKind::ready: on_ready(header); break;
    case MessageKind::request:
      if (header.flags & transport::kCancel)
        cancel(peer, header.sequence);
      else
        deliver_request(peer, header, segment);
      break;
    case MessageKind::eager: deliver_eager(peer, header, segment); break;
    default: deliver_bulk(peer, header, segment);
  }
  return {};
}

// What a peer must not have sent, as things stand between the two; null: it may.
const char* PointToPoint::flaw_in(int peer, const Header& header) const {
  const auto at = static_cast<std::size_t>(peer);
  switch (header.kind) {
    case MessageKind::credit:
      return header.extra > static_cast<std::uint64_t>(kCredits - credits_[at])
                 ? "more credits than it had taken messages"
                 : nullptr;
    case MessageKind::ready: return flaw_in_ready(peer, header);
    case MessageKind::request: {
      const bool offers = (header.flags & transport::kOffered) != 0;
      if (header.bytes != (offers ? sizeof(DeviceNote) : 0)) return "a request of another length";
      if ((header.flags & transport::kCancel) == 0) return flaw_in_new(peer, header);
      const auto met = active_.find({peer, header.sequence});
      return met != active_.end() && met->second.queue.opened() ? "half a message, and took it back"
                                                                : nullptr;
    }
    case MessageKind::eager:
      if (header.bytes > kEagerBytes || header.extra != header.bytes)
        return "an eager message of a length that it may not have";
      return kept_[at] >= kCredits ? "more eager messages than it had credits"
                                   : flaw_in_new(peer, header);
    case MessageKind::bulk: {
      const auto met = active_.find({peer, header.sequence});
      const bool fits = met != active_.end() && header.bytes > 0 &&
                        header.offset == met->second.queue.received() &&
                        header.bytes <= met->second.total - header.offset;
      return fits ? nullptr : "a piece that does not fit";
    }
    default: return "a message of a kind that nobody takes here";
  }
}

// A peer numbers its messages upwards and announces them in that order, so a number never comes back.
const char* PointToPoint::flaw_in_new(int peer, const Header& header) const {
  return header.sequence > last_id_[static_cast<std::size_t>(peer)]
             ? nullptr
             : "a message under a number that it has used";
}

// The send may be over: it was given up while the answer was on its way.
const char* PointToPoint::flaw_in_ready(int peer, const Header& header) const {
  if (header.sequence == 0 || header.sequence >= next_id_) return "an answer to what nobody asked";
  for (const Sending& sending : sends_)
    if (sending.id == header.sequence &&
        (sending.posting.peer != peer || sending.state != State::requested))
      return "an answer to what it was not asked";
  return nullptr;
}

void PointToPoint::deliver_bulk(int peer, const Header& header, const Segment& segment) {
  active_.find({peer, header.sequence})->second.queue.push(segment);
}

std::list<Posting>::iterator PointToPoint::receive_for(int peer, const Header& header) {
  if (some_wait_) return posted_.end();
  return std::find_if(posted_.begin(), posted_.end(),
                      [&](const Posting& posting) { return matches(posting, peer, header); });
}

void PointToPoint::deliver_eager(int peer, const Header& header, Segment segment) {
  ++kept_[static_cast<std::size_t>(peer)];
  last_id_[static_cast<std::size_t>(peer)] = header.sequence;
  Unexpected message{peer, header, segment, {}, nullptr};
  const auto at = receive_for(peer, header);
  if (at != posted_.end()) {
    Posting posting = std::move(*at);
    posted_.erase(at);
    match(std::move(posting), std::move(message));
    return;
  }
  if (segment.lease != 0) {
    message.kept.assign(segment.view, segment.view + segment.bytes);
    Link& link = group_.link_to(peer);
    // Taken back while it was read: the sender has failed, and its abort is on the way.
    const bool revoked = link.revoked(segment.lease);
    link.release(segment.lease);
    message.segment.lease = 0;
    if (revoked) return;
  }
  unexpected_.push_back(std::move(message));
}

// A request has come, from a peer or from this rank itself.
void PointToPoint::deliver_request(int peer, const Header& header, const Segment& segment) {
  Unexpected message{peer, header, {}, {}, nullptr};
  if ((header.flags & transport::kOffered) != 0)
    std::memcpy(&message.offered.emplace(), segment.data(), sizeof(DeviceNote));
  if (segment.lease != 0) group_.link_to(peer).release(segment.lease);
  last_id_[static_cast<std::size_t>(peer)] = header.sequence;
  if (peer == rank_)
    for (Sending& sending : sends_)
      if (sending.id == header.sequence) message.local = &sending;
  const auto at = receive_for(peer, header);
  if (at == posted_.end()) {
    unexpected_.push_back(std::move(message));
    return;
  }
  Posting posting = std::move(*at);
  posted_.erase(at);
  match(std::move(posting), std::move(message));
}

void PointToPoint::match(Posting posting, Unexpected message) {
  if (message.header.kind == MessageKind::eager)
    take_eager(posting, message);
  else
    accept(std::move(posting), message);
}

void PointToPoint::take_eager(const Posting& posting, Unexpected& message) {
  const std::size_t bytes = message.segment.bytes;
  const bool fits = bytes <= posting.bytes;
  const std::byte* data = message.kept.empty() ? message.segment.data() : message.kept.data();
  std::byte* to = fits && bytes > 0 ? host_memory(posting) : nullptr;
  if (to != nullptr) std::memcpy(to, data, bytes);
  if (fits && bytes > 0 && to == nullptr) failure_ = posting.device->trouble();
  bool tainted = false;
  if (message.segment.lease != 0) {
    Link& link = group_.link_to(message.peer);
    tainted = link.revoked(message.segment.lease);
    link.release(message.segment.lease);
  }
  give_credit(message.peer);
  if (tainted) {
    Receiving& receiving = active_[{message.peer, message.header.sequence}];
    receiving.posting = posting;
    receiving.total = bytes;
    receiving.tainted = true;
    return;
  }
  if (fits)
    return land({message.peer, message.header.sequence}, posting, bytes, message.header.tag);
  finish(posting, too_small(posting, message.peer, bytes), {message.peer, message.header.tag, 0});
}

// A request has met its receive: copy (from this rank itself), or tell the sender to go on.
void PointToPoint::accept(Posting posting, const Unexpected& message) {
  const std::size_t bytes = message.header.extra;
  const bool fits = bytes <= posting.bytes;
  if (message.local != nullptr) {
    Sending& sending = *message.local;
    std::byte* to = fits && bytes > 0 ? host_memory(posting) : nullptr;
    if (to != nullptr) std::memcpy(to, sending.posting.data, bytes);
    if (fits && bytes > 0 && to == nullptr) failure_ = posting.device->trouble();
    const Status small = fits ? Status() : too_small(posting, message.peer, bytes);
    if (fits)
      land({message.peer, message.header.sequence}, posting, bytes, message.header.tag);
    else
      finish(posting, small, {message.peer, message.header.tag, 0});
    finish(sending.posting, fits ? Status() : too_small(posting, message.peer, bytes));
    // `sends_` may be walked right now: leave it to step() to drop the entry.
    sending.posting.batch = nullptr;
    sending.posting.bytes = sending.issued = 0;
    sending.state = State::streaming;
    return;
  }
  const bool takes = fits && message.offered && posting.device;
  if (!takes)
    answer(message.peer, message.header.sequence,
           fits ? std::uint8_t{0} : std::uint8_t{transport::kRefuse});
  if (!fits) {
    finish(posting, too_small(posting, message.peer, bytes), {message.peer, message.header.tag, 0});
    return;
  }
  if (bytes == 0) {
    finish(posting, {}, {message.peer, message.header.tag, 0});
    return;
  }
  Receiving& receiving = active_[{message.peer, message.header.sequence}];
  receiving.posting = std::move(posting);
  receiving.total = bytes;
  if (takes) {
    receiving.way = Way::taking;
    receiving.offered = *message.offered;
  } else if (receiving.posting.device) {
    receiving.posting.data = receiving.posting.device->pinned();
    failure_ = receiving.posting.device->trouble();
  }
}

void PointToPoint::on_ready(const Header& header) {
  for (auto at = sends_.begin(); at != sends_.end(); ++at) {
    if (at->id != header.sequence || at->state != State::requested) continue;
    at->state = at->offered ? State::fetching : State::streaming;
    if (header.flags & transport::kTaken) {
      finish(at->posting, {});
      sends_.erase(at);
      return;
    }
    if (header.flags & transport::kRefuse) {
      finish(at->posting,
             {Code::invalid_argument,
              fmt::format("the receive buffer of {} is smaller than the {} bytes of this message",
                          group_.where(at->posting.peer), at->posting.bytes)});
      sends_.erase(at);
    }
    return;
  }
}

// The sender has given up: forget its request, or put the receive that had met it back in line.
void PointToPoint::cancel(int peer, std::uint64_t id) {
  std::erase_if(unexpected_, [&](const Unexpected& message) {
    return message.peer == peer && message.header.kind == MessageKind::request &&
           message.header.sequence == id;
  });
  const auto at = active_.find({peer, id});
  if (at == active_.end()) return;
  Posting posting = std::move(at->second.posting);
  active_.erase(at);
  post(std::move(posting));
}

bool PointToPoint::expire(Nanoseconds now) {
  bool moved = false;
  for (auto at = posted_.begin(); at != posted_.end();) {
    if (now < at->deadline) {
      ++at;
      continue;
    }
    finish(*at, expired(*at));
    at = posted_.erase(at);
    moved = true;
  }
  for (auto at = sends_.begin(); at != sends_.end();) {
    if (now < at->posting.deadline) {
      ++at;
      continue;
    }
    if (at->state == State::streaming || at->state == State::fetching) {
      failure_ = expired(at->posting);
      return true;
    }
    if (at->posting.peer == rank_) {
      std::erase_if(unexpected_, [&](const Unexpected& m) { return m.local == &*at; });
    } else if (at->state == State::requested) {
      Header header = header_for(MessageKind::request, group_.channel(), at->id);
      header.flags |= transport::kCancel;
      (void)group_.link_to(at->posting.peer).send(header, nullptr, 0, 0);
    }
    finish(at->posting, expired(at->posting));
    at = sends_.erase(at);
    moved = true;
  }
  for (auto& [key, receiving] : active_)
    if (now >= receiving.posting.deadline) failure_ = expired(receiving.posting);
  return moved || !failure_.ok();
}

void PointToPoint::finish(const Posting& posting, const Status& status, const Received& received) {
  if (!posting.batch) return;
  if (posting.device) --on_device_;
  Batch& batch = *posting.batch;
  if (!status.ok() && batch.status.ok()) batch.status = status;
  if (received.source >= 0) batch.received = received;
  if (batch.open == 1) ended_.push_back(posting.batch);
  --batch.open;
}

void PointToPoint::give_credit(int peer) {
  int& owed = owed_[static_cast<std::size_t>(peer)];
  if (++owed < kCredits / 4) return;
  Header header = header_for(MessageKind::credit, group_.channel(), 0);
  header.extra = static_cast<std::uint64_t>(owed);
  if (!group_.link_to(peer).send(header, nullptr, 0, 0).accepted) return;
  kept_[static_cast<std::size_t>(peer)] -= std::exchange(owed, 0);
}

void PointToPoint::refuse(std::vector<Posting>& postings, const Status& status) {
  ended_.reserve(ended_.size() + postings.size());
  for (const Posting& posting : postings) on_device_ += posting.device && posting.batch ? 1 : 0;
  for (const Posting& posting : postings) finish(posting, status);
  postings.clear();
}

void PointToPoint::abandon(const Status& status) {
  ended_.reserve(ended_.size() + open());
  const auto release = [&](int peer, const Segment& segment) {
    if (segment.lease != 0)
      (void)or_exhausted([&] { group_.link_to(peer).release(segment.lease); });
  };
  for (const Unexpected& message : unexpected_) release(message.peer, message.segment);
  unexpected_.clear();
  for (auto& [key, receiving] : active_) {
    for (; !receiving.queue.empty(); receiving.queue.pop())
      release(key.first, receiving.queue.front());
    finish(receiving.posting, status);
  }
  active_.clear();
  for (const Posting& posting : posted_) finish(posting, status);
  posted_.clear();
  for (const Sending& sending : sends_) finish(sending.posting, status);
  sends_.clear();
}

bool PointToPoint::waits_for(int peer) const {
  const auto concerns = [&](const Posting& posting) { return posting.peer == peer; };
  return std::any_of(posted_.begin(), posted_.end(), concerns) ||
         std::any_of(sends_.begin(), sends_.end(),
                     [&](const Sending& s) { return concerns(s.posting); }) ||
         std::any_of(active_.begin(), active_.end(), [&](const auto& entry) {
           const Receiving& receiving = entry.second;
           const bool is_here =
               receiving.way == Way::storing || receiving.queue.received() == receiving.total;
           return entry.first.first == peer && !is_here;
         });
}

bool PointToPoint::waits_for_device() const {
  if (on_device_ == 0) return false;
  return std::any_of(sends_.begin(), sends_.end(),
                     [](const Sending& sending) {
                       const bool begins = sending.state == State::fresh && !sending.prepared;
                       return sending.posting.device &&
                              (begins || sending.state == State::fetching);
                     }) ||
         std::any_of(active_.begin(), active_.end(),
                     [](const auto& entry) { return entry.second.way != Way::moving; });
}

Nanoseconds PointToPoint::next_deadline() const {
  Nanoseconds next = Nanoseconds::max();
  for (const Posting& posting : posted_) next = std::min(next, posting.deadline);
  for (const Sending& sending : sends_) next = std::min(next, sending.posting.deadline);
  for (const auto& [key, receiving] : active_) next = std::min(next, receiving.posting.deadline);
  return next;
}

Status PointToPoint::too_small(const Posting& posting, int peer, std::size_t bytes) const {
  return {Code::invalid_argument,
          fmt::format("rank {} received a message of {} bytes (tag {}) from {} into a buffer of "
                      "{} bytes; make it as large as the message",
                      rank_, bytes, posting.tag, group_.where(peer), posting.bytes),
          {rank_, peer, 0}};
}

Status PointToPoint::expired(const Posting& posting) const {
  const std::string whom = posting.peer < 0 ? "any rank" : group_.where(posting.peer);
  const std::string what =
      waits(posting)
          ? fmt::format("waited for {} and did not begin", posting.batch->after->describe())
          : fmt::format("did not meet its {}", posting.is_send ? "receive" : "send");
  return {Code::timed_out,
          fmt::format("rank {}: {} {}, tag {}, {} bytes on group '{}' {} within {:g} s", rank_,
                      posting.is_send ? "send to" : "recv from", whom, posting.tag, posting.bytes,
                      group_name_, what, in_seconds(posting.timeout)),
          {rank_, posting.peer, 0}};
}

}  // namespace tutti::engine
