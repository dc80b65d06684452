// What comes from a group's peers: messages, goodbyes, failures.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "engine/channel.hpp"
#include "engine/engine.hpp"
#include "engine/told_status.hpp"
#include "tutti/shape.hpp"

namespace tutti::engine {

using transport::Header;
using transport::MessageKind;
using transport::Payload;

namespace {

// Messages of one peer for collectives that this rank has not begun: more than the steps of any schedule
// towards one rank.
constexpr int kMostEarly = 1 << 14;
// Of what the next operation waits for, in a report.
constexpr std::size_t kMostOfReport = 1000;
// A control message's payload; nothing when it is not that long.
template <class T>
std::optional<T> payload_of(const Incoming& message) {
  T value{};
  if (message.segment.bytes != sizeof value) return std::nullopt;
  std::memcpy(&value, message.segment.data(), sizeof value);
  return value;
}

// What is no word counts as a refusal.
MeetingWord word_of(const Header& header) {
  return header.extra < 2 ? static_cast<MeetingWord>(header.extra) : MeetingWord::refusal;
}

std::string text_of(const Header& header, const Payload& payload) {
  return {reinterpret_cast<const char*>(payload.data), header.bytes};
}

}  // namespace

// ---- in the poller's hands

// Only if nobody holds the baton just now; the poller does not wait for it.
std::byte* Channel::place(int peer, const Header& header) {
  if (header.kind != MessageKind::data || !baton_.try_lock()) return nullptr;
  std::byte* there = nullptr;
  if (current_ && !torn_down_ && prepared_ && prepared_->by_message &&
      header.sequence == current_->sequence)
    there = prepared_->by_message->place(peer, header);
  baton_.unlock();
  return there;
}

void Channel::on_message(int peer, const Header& header, const Payload& payload) {
  if (peer == size()) {
    if (!inbox_.put({peer, header, Segment::keep(header, payload)}) && payload.lease != 0)
      link_to(peer).release(payload.lease);
    return;
  }
  if (header.kind == MessageKind::abort) {
    // Passed on before the own caller hears of it: whoever told us may not have told all yet, and
    // nobody is to see a rank leave before it knows why.
    fail(decode(text_of(header, payload)), true);
    if (payload.lease != 0) link_to(peer).release(payload.lease);
    return;
  }
  if (header.kind == MessageKind::meet) {
    meetings_.put(peer, header.tag, {word_of(header), text_of(header, payload)});
    if (payload.lease != 0) link_to(peer).release(payload.lease);
    return;
  }
  if (header.kind == MessageKind::device) {
    hear_of_device_memory(peer, header, payload);
    if (payload.lease != 0) link_to(peer).release(payload.lease);
    return;
  }
  if (header.kind == MessageKind::view) {
    hear_of_survivors(peer, text_of(header, payload));
    if (payload.lease != 0) link_to(peer).release(payload.lease);
    return;
  }
  if (header.kind == MessageKind::goodbye) survivors_.leave(peer);
  if (header.kind == MessageKind::query) {
    return answer(peer);
  }
  if (!inbox_.put({peer, header, Segment::keep(header, payload)}) && payload.lease != 0)
    link_to(peer).release(payload.lease);
}

// Names of groups are as long as their makers like; a report is a control message.
void Channel::answer(int peer) {
  const ActivityReport report = log_.answer(peer, engine_->clock().now());
  std::string told(reinterpret_cast<const char*>(&report), sizeof report);
  if (report.held != 0) told += log_.held_for().substr(0, kMostOfReport);
  members_.send(peer, MessageKind::report, told.data(), told.size());
}

// Whoever takes this rank for dead is dead to it.
void Channel::hear_of_survivors(int peer, std::string_view opinion) {
  const int self = engine_->endpoint().rank();
  if (!survivors_.hear(peer, opinion))
    engine_->cut_off(options().members[static_cast<std::size_t>(peer)],
                     {Code::peer_lost, exclusion().message(), {self, self, 0}});
  if (survivors_.is_excluded()) fail(exclusion(), false);
}

Status Channel::exclusion() const {
  return {Code::peer_lost,
          fmt::format("{} was taken for dead, and the others of group '{}' went on without it",
                      members_.where(members_.rank()), members_.name()),
          {members_.rank(), members_.rank(), 0}};
}

void Channel::on_down(int peer, const Status& reason) {
  const bool is_switch = peer == size();
  if (!is_switch) survivors_.lose(peer);
  // It lives, but what it says cannot be believed: nothing that it sent later is waited for.
  if (reason.code() == Code::corrupt && !is_switch)
    fail(
        {Code::corrupt,
         fmt::format("group '{}' cannot go on: {}", members_.name(), members_.retell(peer, reason)),
         {members_.rank(), peer, 0}},
        true);
  // Through the inbox: what the peer sent before it went away is looked at first.
  Incoming message;
  message.peer = peer;
  message.header = transport::header_for(MessageKind::goodbye, channel(), 0);
  message.header.extra = 1;
  engine_->log().trace(Subsystem::net, "lost {}: {}", members_.where(peer), reason.message());
  inbox_.put_always(message);
}

void Channel::say_goodbye() {
  for (int peer : members_.linked()) members_.send(peer, MessageKind::goodbye, nullptr, 0);
  if (options().switch_rank >= 0) members_.send(size(), MessageKind::goodbye, nullptr, 0);
}

void Channel::say_at_meeting(int peer, std::uint32_t tag, const MeetingNote& note) {
  auto header = transport::header_for(MessageKind::meet, channel(), 0);
  header.tag = tag;
  header.extra = static_cast<std::uint64_t>(note.word);
  (void)link_to(peer).send(header, note.words.data(), note.words.size(), 0);
}

void Channel::tell(const Status& status) {
  const std::string told = encode(status);
  for (int peer : members_.linked())
    members_.send(peer, MessageKind::abort, told.data(), told.size());
  engine_->spread_failure(options(), status);
}

// ---- in the hands of the baton's holder

void Channel::handle(Incoming& message) {
  if (message.peer == size()) return handle_switch(message);
  switch (message.header.kind) {
    case MessageKind::arrive: {
      const auto call = payload_of<Fingerprint>(message);
      if (!call || !arrivals_.on_arrive(message.peer, message.header.sequence, *call))
        return refuse(message);
      break;
    }
    case MessageKind::data: handle_data(message); break;
    case MessageKind::goodbye:
      if (message.header.extra == 0)
        absences_.note_left(message.peer, engine_->polls());
      else
        absences_.note_lost(
            message.peer, engine_->polls(),
            engine_->why_down(options().members[static_cast<std::size_t>(message.peer)]));
      break;
    case MessageKind::report: {
      ActivityReport report;
      if (message.segment.bytes < sizeof report) return refuse(message);
      std::memcpy(&report, message.segment.data(), sizeof report);
      const std::string_view words(reinterpret_cast<const char*>(message.segment.data()),
                                   message.segment.bytes);
      absences_.note_report(message.peer, report, words.substr(sizeof report));
      arrivals_.on_report(message.peer, report);
      release(message);
      break;
    }
    default: {
      const Status status = point_to_point_.deliver(message.peer, message.header, message.segment);
      if (!status.ok()) fail(status, true);
    }
  }
}

// It is no member: it comes to collectives, sends what it has folded, and goes.
void Channel::handle_switch(Incoming& message) {
  switch (message.header.kind) {
    case MessageKind::arrive: uplink_.note_come(message.header.sequence); break;
    case MessageKind::data: return handle_data(message);
    case MessageKind::goodbye:
      uplink_.lose(message.header.extra == 0
                       ? Status(Code::peer_lost, "it has lost another rank of the group")
                       : engine_->why_down(options().switch_rank));
      break;
    default: break;
  }
  release(message);
}

// What is still on its way to it is nobody's result any more, and its memory goes back to the caller.
void Channel::let_go_of_switch() {
  engine_->between_polls([&](transport::Endpoint& endpoint) {
    if (transport::Link* link = endpoint.link(options().switch_rank)) link->forget(channel());
  });
}

void Channel::tell_of_switch() {
  const std::string text = fmt::format("group '{}' goes on without {}: {}", members_.name(),
                                       members_.where(size()), uplink_.loss().message());
  if (members_.rank() == 0)
    engine_->log().warn(Subsystem::net, "{}", text);
  else
    engine_->log().info(Subsystem::net, "{}", text);
}

void Channel::refuse(const Incoming& message) {
  release(message);
  fail({Code::corrupt,
        fmt::format("{} sent {} bytes as {} #{} on group '{}', which cannot be one",
                    members_.where(message.peer), message.header.bytes,
                    transport::to_string(message.header.kind), message.header.sequence,
                    members_.name()),
        {members_.rank(), message.peer, 0}},
       true);
}

void Channel::handle_data(Incoming& message) {
  const std::uint64_t begun = arrivals_.sequence();
  if (message.header.sequence > begun) {
    if (!keep_early(message)) refuse(message);
    return;
  }
  // Left over from a call that differed; the comparison of arrivals has said so already.
  if (!current_ || !prepared_ || !prepared_->by_message || message.header.sequence < begun)
    return release(message);
  // Its line was there before its data; if it tells of another call, that is what is wrong.
  arrivals_.look_at_lines();
  if (inbox_.has_failed() || arrivals_.is_disputed()) return release(message);
  prepared_->by_message->deliver(message.peer, message.header, message.segment);
  fail_as_run_says();
}

// Nobody has invited it: a correct rank sends only what is small then, and for what it can have begun.
bool Channel::keep_early(const Incoming& message) {
  const auto& [peer, header, segment] = message;
  const std::size_t most = link_to(peer).eager_bytes();
  int& count = early_of_[static_cast<std::size_t>(peer)];
  if (!arrivals_.is_in_reach(header.sequence) || count >= kMostEarly || header.bytes > most ||
      header.offset > most - header.bytes)
    return false;
  ++count;
  early_.push_back(message);
  return true;
}

// A rank that has found out first that calls differ has taken its line back; its word of that follows its data.
bool Channel::may_have_failed(int peer) const {
  return memory_ && peer >= 0 && peer < size() && !arrivals_.has_arrived(peer);
}

// What differs between ranks is more than the run knows.
void Channel::fail_as_run_says() {
  const Status failure = prepared_->run().failure();
  if (failure.code() == Code::mismatch && is_on_device())
    note_device_mismatch(*current_, failure.peer());
  else if (failure.code() == Code::mismatch)
    arrivals_.note_mismatch(failure.peer());
  else if (failure.code() == Code::corrupt && may_have_failed(failure.peer()))
    return;
  else if (!failure.ok() && failure.peer() >= 0)
    fail(failure.annotate(members_.where(failure.peer())), true);
  else if (!failure.ok())
    fail(failure, true);
}

// Whoever is wrong must not go on, and neither must this rank before it knows.
bool Channel::settle_dispute() {
  const Status verdict = arrivals_.settle(engine_->clock().now());
  if (!verdict.ok()) fail(verdict, true);
  next_deadline_.store(arrivals_.next_question().count(), std::memory_order_relaxed);
  return !verdict.ok();
}

// Those who are gone, then those who are late.
bool Channel::look_for_absent() {
  if (absences_.must_wait(engine_->polls())) return true;  // there is more to do
  const auto needs = [&](int peer) {
    const auto& company = arrivals_.company();
    return (current_ && !has_arrived(peer) &&
            std::binary_search(company.begin(), company.end(), peer)) ||
           point_to_point_.waits_for(peer) || meetings_.waits_for(peer);
  };
  const Operation* operation = watched();
  Status status = absences_.verdict(operation, needs);
  if (status.ok() && is_time_to_ask_device()) status = launched_.trouble();
  if (status.ok()) status = look_for_held();
  bool asked = false;
  if (status.ok() && operation != nullptr) status = look_for_late(*operation, asked);
  if (!status.ok()) fail(status, true);
  return asked || arrivals_.is_disputed() || !status.ok();
}

Status Channel::look_for_late(const Operation& operation, bool& asked) {
  const Nanoseconds now = engine_->clock().now();
  if (look_for_other_kind(operation)) return {};
  const auto attendance = attendance_of(operation);
  if (Status status = absences_.check_deadline(operation, *attendance, now, asked); !status.ok())
    return status;
  // A stream may have as much to do before it as it likes. Boards know how far they are.
  if (operation.ticket != 0 && device()->reaches_all() &&
      !device()->has_entered(members_.rank(), operation.ticket))
    return {};
  const auto slow = absences_.name_slow(operation, *attendance, now, asked);
  if (!slow.empty()) engine_->log().warn(Subsystem::watch, "{}", slow);
  return {};
}

// Whoever passed host memory looks for the others' lines, and whoever passed device memory for their
// boards: a rank that passed the other kind is found in the other place.
bool Channel::look_for_other_kind(const Operation& operation) {
  if (!device()) return false;
  for (const int peer : members_.others()) {
    std::optional<Fingerprint> theirs;
    if (operation.ticket == 0 && device()->has_board(peer))
      theirs = device()->called(peer, operation.sequence);
    else if (operation.ticket != 0 && memory_)
      theirs = memory_->called(peer, operation.sequence);
    // One that goes through host memory is told of there, on device memory or not.
    if (!theirs || agree(operation.launch->fingerprint, *theirs)) continue;
    arrivals_.note_mismatch(operation.sequence, operation.launch->fingerprint, peer, *theirs);
    return true;
  }
  return false;
}

}  // namespace tutti::engine
