#include "engine/arrivals.hpp"

#include <algorithm>
#include <utility>

#include "engine/numbers.hpp"
#include "tutti/shape.hpp"

namespace tutti::engine {
namespace {

// Calls that are kept to compare with late arrivals. A peer is never further behind, nor ahead, than there
// are ranks between it and us, so this is plenty.
constexpr std::size_t kHistory = 256;
// Up to so many bytes, both sides together, those who are sent data are told with it. Whoever called something
// else still has to learn of it soon.
constexpr std::size_t kSmall = 16 * 1024;
constexpr Nanoseconds kUntold = std::chrono::milliseconds(1);

std::size_t bytes_of(const std::vector<Piece>& pieces) {
  std::size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  return bytes;
}

}  // namespace

Arrivals::Arrivals(const Members& members)
    : members_(members),
      company_(&members.others()),
      peers_(static_cast<std::size_t>(members.size()) + 1),  // the switch never comes by these
      history_(kHistory),
      dispute_(members) {}

void Arrivals::begin_by_message(const Launch& launch, std::uint64_t sequence,
                                const Company& company, Nanoseconds now) {
  launch_ = &launch;
  sequence_ = sequence;
  history_[sequence % history_.size()] = launch.fingerprint;
  if (memory_ != nullptr) {
    memory_->open(sequence);
    memory_->publish(sequence, launch.fingerprint, launch.call_hash);
  }
  message_peers_ = company.peers;
  // A leaf of a broadcast would be through while another leaf has called something else; where not every
  // pair has a link, a barrier beside it keeps it (RunCache).
  const bool all =
      memory_ != nullptr || (!shape_of(launch.collective).all_meet() && !members_.is_lazy());
  company_ = all ? &members_.others() : &message_peers_;
  untold_.clear();
  untold_until_ = now + kUntold;
  announce(company.told_with_data);
  look_at_announced();
}

// Tells only what the lines do not: on one host everybody reads everybody's line, but a line has no
// room for what each pair exchanges.
void Arrivals::announce(const std::vector<int>& told_with_data) {
  if (memory_ != nullptr && !is_pairwise()) return;  // the line has told it
  for (int peer : *company_)
    if (std::binary_search(told_with_data.begin(), told_with_data.end(), peer) && may_wait(peer))
      untold_.push_back(peer);
    else
      tell(peer);
}

// In memory nothing is saved. Where a message would wait for an invitation, none may wait for a message.
bool Arrivals::may_wait(int peer) const {
  const transport::Link& link = members_.link_to(peer);
  const std::size_t bytes = bytes_of(launch_->input) + bytes_of(launch_->output);
  return !link.shares_memory() && bytes <= std::min(kSmall, link.eager_bytes());
}

void Arrivals::tell(int peer) {
  Fingerprint call = launch_->fingerprint;
  if (is_pairwise()) {
    call.to_you = launch_->to_peer[static_cast<std::size_t>(peer)];
    call.from_you = launch_->from_peer[static_cast<std::size_t>(peer)];
  }
  auto header =
      transport::header_for(transport::MessageKind::arrive, members_.channel(), sequence_);
  header.flags = transport::kHold;  // the first data may go along
  (void)members_.link_to(peer).send(header, &call, sizeof call, 0);
  held_ = true;
}

void Arrivals::announce_to(int peer) {
  if (untold_.empty()) return;
  const auto at = std::find(untold_.begin(), untold_.end(), peer);
  if (at == untold_.end()) return;
  untold_.erase(at);
  tell(peer);
}

void Arrivals::announce_late(Nanoseconds now) {
  if (untold_.empty() || launch_ == nullptr || now < untold_until_) return;
  for (int peer : untold_) tell(peer);
  untold_.clear();
  flush();
}

Nanoseconds Arrivals::next_announcement() const {
  return launch_ == nullptr || untold_.empty() ? Nanoseconds::max() : untold_until_;
}

void Arrivals::flush() {
  if (!std::exchange(held_, false)) return;
  for (int peer : *company_) members_.link_to(peer).flush_held();
}

// Users' collectives begin with a leap, when the group is set up.
bool Arrivals::is_in_reach(std::uint64_t sequence) const {
  const std::uint64_t ahead = std::max<std::uint64_t>(kHistory, peers_.size());
  return sequence <= std::max(sequence_, kSetUpSequences) + ahead;
}

// A peer may be ahead. What it called there waits until this rank has come as far; comparing earlier would
// blame it for calls that this rank has not made yet.
bool Arrivals::on_arrive(int peer, std::uint64_t sequence, const Fingerprint& theirs) {
  if (sequence <= sequence_) return compare(peer, sequence, theirs), true;
  auto& announced = peer_at(peer).announced;
  const bool is_next = announced.empty() || announced.back().sequence < sequence;
  if (!is_next || !is_in_reach(sequence)) return false;
  announced.push_back({sequence, theirs});
  return true;
}

void Arrivals::look_at_announced() {
  for (int peer = 0; peer < members_.size(); ++peer) {
    auto& announced = peer_at(peer).announced;
    while (!announced.empty() && announced.front().sequence <= sequence_) {
      compare(peer, announced.front().sequence, announced.front().call);
      announced.pop_front();
    }
  }
}

void Arrivals::compare(int peer, std::uint64_t sequence, const Fingerprint& theirs) {
  if (sequence + history_.size() <= sequence_) return;  // long past
  const bool is_current = launch_ != nullptr && sequence == sequence_;
  // One that went by its host form is not in the history: it cannot end before all have come to it,
  // and whoever calls something else instead does so while it is under way.
  Fingerprint mine = is_current ? launch_->fingerprint : history_[sequence % history_.size()];
  if (is_current && is_pairwise()) {
    mine.to_you = launch_->to_peer[static_cast<std::size_t>(peer)];
    mine.from_you = launch_->from_peer[static_cast<std::size_t>(peer)];
  } else if (!is_current) {
    mine.to_you = theirs.from_you;  // not kept for calls that are over
    mine.from_you = theirs.to_you;
  }
  if (!agree(mine, theirs)) return dispute_.open(sequence, mine, peer, theirs);
  Peer& state = peer_at(peer);
  state.arrived = std::max(state.arrived, sequence);
}

bool Arrivals::differs(int peer) const {
  return memory_->line_of(peer, sequence_).call_hash != launch_->call_hash;
}

void Arrivals::look_at_lines() {
  if (memory_ == nullptr || launch_ == nullptr) return;
  for (int peer : *company_)
    if (memory_->arrived(peer, sequence_) && differs(peer)) return note_mismatch(peer);
}

void Arrivals::note_mismatch(int peer) {
  dispute_.open(sequence_, launch_->fingerprint, peer, memory_->call_of(peer, sequence_));
}

Status Arrivals::settle(Nanoseconds now) {
  look_for_calls();
  return dispute_.judge(now);
}

// What can be known without asking.
void Arrivals::look_for_calls() {
  const std::uint64_t disputed = dispute_.sequence();
  for (int peer : members_.others()) {
    const Peer& state = peer_at(peer);
    if (state.arrived >= disputed) dispute_.note_agrees(peer);
    for (const Announced& each : state.announced)
      if (each.sequence == disputed) dispute_.note(peer, each.call);
    if (memory_ != nullptr && memory_->arrived(peer, disputed))
      dispute_.note(peer, memory_->call_of(peer, disputed));
  }
}

// A peer that called something else has not arrived: its data would be taken for the wrong thing. The
// mismatch itself is noted by whoever looks at lines or gets its message.
bool Arrivals::has_arrived(int peer) const {
  if (launch_ == nullptr) return false;
  if (memory_ != nullptr && (!memory_->arrived(peer, sequence_) || differs(peer))) return false;
  // Pairs have more to compare than a line tells.
  return (memory_ != nullptr && !is_pairwise()) || peer_at(peer).arrived == sequence_;
}

bool Arrivals::all_have_arrived() const {
  return std::all_of(company_->begin(), company_->end(),
                     [&](int peer) { return has_arrived(peer); });
}

}  // namespace tutti::engine
