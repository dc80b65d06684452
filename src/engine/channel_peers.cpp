// The group's peers: who has arrived with which call, who is late, who is gone.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/bytes.hpp"
#include "engine/channel.hpp"
#include "engine/engine.hpp"
#include "tutti/shape.hpp"

namespace tutti::engine {

using namespace std::chrono_literals;
using transport::Header;
using transport::MessageKind;
using transport::Payload;

namespace {

// How long ranks that did not come may take to say what they are doing instead.
constexpr Nanoseconds kAskFor = 250ms;
// Of a status that is told to others; the rest is cut off.
constexpr std::size_t kMaxToldBytes = 3500;

Header header_for(MessageKind kind, std::uint32_t channel, std::uint64_t sequence) {
  Header header;
  header.kind = kind;
  header.channel = channel;
  header.sequence = sequence;
  return header;
}

std::string encode(const Status& status) {
  ByteWriter writer;
  writer.put(static_cast<std::uint8_t>(status.code()));
  writer.put(static_cast<std::int32_t>(status.rank()));
  writer.put(static_cast<std::int32_t>(status.peer()));
  writer.put(status.sequence());
  writer.put_string(std::string_view(status.message()).substr(0, kMaxToldBytes));
  return writer.take();
}

Status decode(std::string_view bytes) {
  ByteReader reader(bytes);
  std::uint8_t code = 0;
  std::int32_t rank = -1;
  std::int32_t peer = -1;
  std::uint64_t sequence = 0;
  std::string message;
  if (!reader.get(code) || !reader.get(rank) || !reader.get(peer) || !reader.get(sequence) ||
      !reader.get_string(message) || code == 0 || code > static_cast<std::uint8_t>(Code::internal))
    return {Code::corrupt, "a rank reported a failure that cannot be read"};
  return {static_cast<Code>(code), std::move(message), {rank, peer, sequence}};
}

}  // namespace

int Channel::group_rank(int world_rank) const {
  const auto at = std::find(options_.members.begin(), options_.members.end(), world_rank);
  return at == options_.members.end() ? -1 : static_cast<int>(at - options_.members.begin());
}

transport::Link& Channel::link_to(int peer) {
  return *engine_->endpoint().link(options_.members[static_cast<std::size_t>(peer)]);
}

bool Channel::has_arrived(int peer) const {
  if (!current_) return false;
  const std::uint64_t sequence = current_->sequence;
  if (stage_ && (!stage_->arrived(peer, sequence) ||
                 stage_->line_of(peer, sequence).print != current_->launch().print))
    return false;
  // Pairs have more to compare than a line tells.
  return (stage_ && current_->launch().to_peer.empty()) ||
         peers_[static_cast<std::size_t>(peer)].arrived == sequence;
}

transport::MemoryRef Channel::output_of(int peer) const {
  return peers_[static_cast<std::size_t>(peer)].output;
}

std::string Channel::where(int peer) const {
  const int member = options_.members[static_cast<std::size_t>(peer)];
  return fmt::format("rank {} ({})", peer, engine_->endpoint().whereabouts(member));
}

// ---- in the poller's hands

// Only if nobody holds the baton just now; the poller does not wait for it.
std::byte* Channel::place(int peer, const Header& header) {
  if (header.kind != MessageKind::data || !baton_.try_lock()) return nullptr;
  std::byte* there = nullptr;
  if (current_ && !torn_down_ && ready_->plan && header.sequence == current_->sequence)
    there = ready_->plan->place(peer, header);
  baton_.unlock();
  return there;
}

void Channel::on_message(int peer, const Header& header, const Payload& payload) {
  if (header.kind == MessageKind::abort) {
    const auto* text = reinterpret_cast<const char*>(payload.data);
    // Passed on before the own caller hears of it: whoever told us may not have told all yet, and
    // nobody is to see a rank leave before it knows why.
    fail(decode({text, header.bytes}), true);
    if (payload.lease != 0) link_to(peer).release(payload.lease);
    return;
  }
  if (header.kind == MessageKind::query) {
    answer_query(peer);
    return;
  }
  std::scoped_lock lock(inbox_lock_);
  if (!failure_.ok()) {
    if (payload.lease != 0) link_to(peer).release(payload.lease);
    return;
  }
  inbox_.push_back({peer, header, Segment::keep(header, payload)});
  has_news_.store(true, std::memory_order_release);
}

void Channel::on_down(int peer, const Status& reason) {
  // Through the inbox: what the peer sent before it went away is looked at first.
  Incoming message;
  message.peer = peer;
  message.header = header_for(MessageKind::goodbye, options_.id, 0);
  message.header.extra = 1;
  engine_->log().trace(Subsystem::net, "lost {}: {}", where(peer), reason.message());
  std::scoped_lock lock(inbox_lock_);
  inbox_.push_back(message);
  has_news_.store(true, std::memory_order_release);
}

void Channel::answer_query(int peer) {
  Report report;
  {
    std::scoped_lock lock(inbox_lock_);
    report.call = last_call_;
    report.sequence = last_sequence_;
    report.running = last_running_;
    report.posted = open_messages_.load(std::memory_order_relaxed);
  }
  (void)link_to(peer).send(header_for(MessageKind::report, options_.id, 0), &report, sizeof report,
                           0);
}

// ---- in the hands of the baton's holder

void Channel::handle(Incoming& message) {
  const std::byte* bytes = message.segment.data();
  switch (message.header.kind) {
    case MessageKind::arrive: {
      Arrival arrival;
      if (message.segment.bytes == sizeof arrival) std::memcpy(&arrival, bytes, sizeof arrival);
      handle_arrive(message.peer, message.header.sequence, arrival);
      break;
    }
    case MessageKind::data: handle_data(message); break;
    case MessageKind::goodbye: {
      Peer& peer = peers_[static_cast<std::size_t>(message.peer)];
      (message.header.extra == 0 ? peer.left : peer.lost) = true;
      someone_departed_ = true;
      departed_at_ = engine_->polls();
      break;
    }
    case MessageKind::report: {
      Report report;
      if (message.segment.bytes == sizeof report) std::memcpy(&report, bytes, sizeof report);
      Peer& peer = peers_[static_cast<std::size_t>(message.peer)];
      peer.report = describe(report);
      peer.reported = report.sequence;
      break;
    }
    default: {
      const Status status =
          point_to_point_.deliver(message.peer, message.header, message.segment, *this);
      if (!status.ok()) fail(status, true);
    }
  }
}

void Channel::choose_company() {
  if (ready_->plan) company_ = ready_->plan->compiled().peers;
  // A leaf of a broadcast would be through while another leaf has called something else.
  if (shape_of(current_->launch().collective).all_meet() && !stage_) return;
  company_.clear();
  for (int peer = 0; peer < size(); ++peer)
    if (peer != options_.rank) company_.push_back(peer);
}

void Channel::announce() {
  const Launch& launch = current_->launch();
  if (stage_ && launch.to_peer.empty()) return;
  Arrival arrival;
  arrival.call = launch.fingerprint;
  for (int peer : company_) {
    transport::Link& link = link_to(peer);
    if (!launch.to_peer.empty()) {
      arrival.call.to_you = launch.to_peer[static_cast<std::size_t>(peer)];
      arrival.call.from_you = launch.from_peer[static_cast<std::size_t>(peer)];
    }
    arrival.output = {};
    if (launch.output.size() == 1)
      arrival.output = link.share(launch.output[0].data, launch.output[0].bytes);
    Header header = header_for(MessageKind::arrive, options_.id, current_->sequence);
    header.flags = transport::kHold;  // the first data may go along
    (void)link.send(header, &arrival, sizeof arrival, 0);
  }
  arrivals_held_ = true;
}

void Channel::handle_arrive(int peer, std::uint64_t sequence, const Arrival& arrival) {
  const std::uint64_t begun = current_ ? current_->sequence : last_sequence_.load();
  if (sequence > begun)
    peers_[static_cast<std::size_t>(peer)].announced.push_back({sequence, arrival});
  else
    compare(peer, sequence, arrival);
}

void Channel::look_at_announced() {
  for (int peer = 0; peer < size(); ++peer) {
    auto& announced = peers_[static_cast<std::size_t>(peer)].announced;
    while (!announced.empty() && announced.front().sequence <= current_->sequence) {
      compare(peer, announced.front().sequence, announced.front().arrival);
      announced.pop_front();
    }
  }
}

void Channel::compare(int peer, std::uint64_t sequence, const Arrival& arrival) {
  if (sequence + history_.size() <= last_sequence_) return;  // long past
  Fingerprint mine = history_[sequence % history_.size()];
  const bool is_current = current_ && sequence == current_->sequence;
  if (is_current && !current_->launch().to_peer.empty()) {
    mine.to_you = current_->launch().to_peer[static_cast<std::size_t>(peer)];
    mine.from_you = current_->launch().from_peer[static_cast<std::size_t>(peer)];
  } else if (!is_current) {
    mine.to_you = arrival.call.from_you;  // not kept for calls that are over
    mine.from_you = arrival.call.to_you;
  }
  if (!agree(mine, arrival.call)) return fail_mismatch(peer, sequence, mine, arrival.call);
  Peer& state = peers_[static_cast<std::size_t>(peer)];
  state.arrived = std::max(state.arrived, sequence);
  state.output = arrival.output;
}

void Channel::fail_mismatch(int peer, std::uint64_t sequence, const Fingerprint& mine,
                            const Fingerprint& theirs) {
  fail(
      {Code::mismatch,
       fmt::format("ranks called different things as #{} on group '{}': {} called {}, {} called {}",
                   sequence, options_.name, where(options_.rank), describe(mine), where(peer),
                   describe(theirs)),
       {options_.rank, peer, sequence}},
      true);
}

// On a stage even a collective that goes by message is announced there: whoever called something
// else may be looking nowhere else.
void Channel::look_at_lines() {
  const std::uint64_t sequence = current_->sequence;
  for (int peer : company_)
    if (stage_->arrived(peer, sequence) &&
        stage_->line_of(peer, sequence).print != current_->launch().print)
      return fail_mismatch(peer, sequence, current_->launch().fingerprint,
                           stage_->call_of(peer, sequence));
}

void Channel::handle_data(Incoming& message) {
  const std::uint64_t begun = current_ ? current_->sequence : last_sequence_.load();
  if (message.header.sequence > begun) {
    early_.push_back(message);
    return;
  }
  if (!current_ || !ready_->plan || message.header.sequence < begun) {
    // Left over from a call that differed; the comparison of arrivals has said so already.
    if (message.segment.lease != 0) link_to(message.peer).release(message.segment.lease);
    return;
  }
  // Its line was there before its data; if it tells of another call, that is what is wrong.
  if (stage_) look_at_lines();
  if (failed_.load(std::memory_order_relaxed)) {
    if (message.segment.lease != 0) link_to(message.peer).release(message.segment.lease);
    return;
  }
  const Status status = ready_->plan->deliver(message.peer, message.header, message.segment, *this);
  if (!status.ok()) fail(status, true);
}

bool Channel::everyone_arrived() const {
  return std::all_of(company_.begin(), company_.end(), [&](int peer) { return has_arrived(peer); });
}

// Whom to ask when the time is up: those who did not come. If all came that this rank talks to, one
// further away may be missing and keep them waiting, so everybody is asked.
std::vector<int> Channel::suspects() const {
  std::vector<int> asked;
  for (int peer : company_)
    if (!has_arrived(peer)) asked.push_back(peer);
  if (!asked.empty()) return asked;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != options_.rank) asked.push_back(peer);
  return asked;
}

// A peer has gone. In good order that matters only if it is still needed; else always.
bool Channel::judge_departed() {
  if (!someone_departed_) return false;
  // A poll under way may have passed the link on which the cause of it all is waiting; the one
  // after it has not.
  if (engine_->polls() < departed_at_ + 2) return true;  // there is more to do
  for (int peer = 0; peer < size(); ++peer) {
    const Peer& state = peers_[static_cast<std::size_t>(peer)];
    if (!state.left && !state.lost) continue;
    const bool needed = (current_ && !has_arrived(peer) &&
                         std::binary_search(company_.begin(), company_.end(), peer)) ||
                        point_to_point_.waits_for(peer);
    if (state.left && !needed) continue;
    fail_without(peer);
    return true;
  }
  return false;
}

void Channel::fail_without(int peer) {
  const std::uint64_t sequence = current_ ? current_->sequence : 0;
  const std::string during =
      current_ ? fmt::format(" during {} #{}", describe(current_->launch().fingerprint), sequence)
               : "";
  const bool left = peers_[static_cast<std::size_t>(peer)].left;
  fail({Code::peer_lost,
        fmt::format("{} {} group '{}'{}; restart the job or go on with a group without it",
                    where(peer), left ? "has left" : "died or lost its connection to",
                    options_.name, during),
        {options_.rank, peer, sequence}},
       true);
}

void Channel::say_goodbye() {
  for (int peer = 0; peer < size(); ++peer)
    if (peer != options_.rank)
      (void)link_to(peer).send(header_for(MessageKind::goodbye, options_.id, 0), nullptr, 0, 0);
}

// ---- watching the time

bool Channel::check_deadline() {
  if (!current_) return false;
  const Nanoseconds now = engine_->clock().now();
  if (now < current_->deadline) return false;
  if (asked_until_.count() == 0) {
    asked_until_ = deadline_after(now, kAskFor);
    suspects_ = suspects();
    ask_suspects();
    return true;
  }
  const bool all_answered = std::all_of(suspects_.begin(), suspects_.end(), [&](int peer) {
    return !peers_[static_cast<std::size_t>(peer)].report.empty();
  });
  if (now < asked_until_ && !all_answered) return false;
  fail(late_status(), true);
  return true;
}

void Channel::ask_suspects() {
  for (int peer : suspects_) {
    peers_[static_cast<std::size_t>(peer)].report.clear();
    (void)link_to(peer).send(header_for(MessageKind::query, options_.id, 0), nullptr, 0, 0);
  }
}

// Those who do not answer, or say that they are not at this collective yet. If all are, somebody
// stopped on the way.
std::vector<int> Channel::at_fault() const {
  std::vector<int> late;
  for (int peer : suspects_) {
    const Peer& state = peers_[static_cast<std::size_t>(peer)];
    if (state.report.empty() || state.reported < current_->sequence) late.push_back(peer);
  }
  if (!late.empty()) return late;
  return ready_->plan ? ready_->plan->waiting_for() : stage_run_->waiting_for();
}

Status Channel::late_status() const {
  const auto late = at_fault();
  const Launch& launch = current_->launch();
  std::string text;
  for (int peer : late) {
    const std::string& report = peers_[static_cast<std::size_t>(peer)].report;
    if (!text.empty()) text += "; ";
    text += fmt::format("{} {} {} #{} on group '{}' within {:g} s; {}", where(peer),
                        has_arrived(peer) ? "joined but did not finish" : "did not join",
                        to_string(launch.collective), current_->sequence, options_.name,
                        std::chrono::duration<double>(launch.timeout).count(),
                        report.empty() ? "it does not answer (stopped, or cut off)" : report);
  }
  if (late.empty())
    text = fmt::format("{} #{} on group '{}' did not finish within {:g} s",
                       to_string(launch.collective), current_->sequence, options_.name,
                       std::chrono::duration<double>(launch.timeout).count());
  return {Code::timed_out, text, {options_.rank, late.empty() ? -1 : late[0], current_->sequence}};
}

// ---- failing

void Channel::fail(const Status& status, bool tell_others) {
  {
    std::scoped_lock lock(inbox_lock_);
    if (!failure_.ok()) return;
    failure_ = status;
  }
  // The others first: once our caller knows, it may go, and they would see only that.
  if (tell_others) tell(status);
  failed_.store(true, std::memory_order_release);
  has_news_.store(true, std::memory_order_release);
  engine_->kick();
}

void Channel::tell(const Status& status) {
  const std::string told = encode(status);
  for (int peer = 0; peer < size(); ++peer)
    if (peer != options_.rank)
      (void)link_to(peer).send(header_for(MessageKind::abort, options_.id, 0), told.data(),
                               told.size(), 0);
}

Status Channel::health() const {
  std::scoped_lock lock(inbox_lock_);
  return failure_;
}

}  // namespace tutti::engine
