// engine/arrivals.hpp - who has come to the collective under way, and whether with the same call.
//
// No collective ends on any rank before every rank has arrived with the same call. Where ranks share
// a host everyone looks at everyone's line. Elsewhere ranks tell those they exchange messages with,
// where the data's way does the rest (all_reduce, all_gather …); in collectives in which some rank
// depends on few others (rooted ones, scans) they tell all.
//
// Arrivals of collectives that this rank has not begun yet are kept; those of past ones are compared
// with what it called then.
//
// Thread-safety  none: the baton's holder.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "core/clock.hpp"
#include "engine/by_message.hpp"
#include "engine/dispute.hpp"
#include "engine/fingerprint.hpp"
#include "engine/host_memory.hpp"
#include "engine/launch.hpp"
#include "engine/members.hpp"
#include "tutti/status.hpp"

namespace tutti::engine {

class Arrivals {
 public:
  explicit Arrivals(const Members& members);
  // From the next collective on, ranks meet there; null: no longer.
  void meet_in(HostMemory* memory) { memory_ = memory; }

  // A collective begins by its host form: lines tell it all.
  void begin_on_host(const Launch& launch, std::uint64_t sequence) {
    launch_ = &launch;
    sequence_ = sequence;
    company_ = &members_.others();
  }
  // A collective begins by messages: tells those who must know, and looks at who has come before. Where
  // it is small, those who are sent data are told with that, in the same system call, if it follows soon.
  void begin_by_message(const Launch& launch, std::uint64_t sequence, const Company& company,
                        Nanoseconds now);
  void end() { launch_ = nullptr; }
  // Data is about to be sent there.
  void announce_to(int peer);
  // Nothing moves: whoever was not told yet is told now, if that has taken too long.
  void announce_late(Nanoseconds now);
  // Until then announcements may wait; max: none does.
  Nanoseconds next_announcement() const;
  // What was told may wait in the links for the first data to go along. It has had its chance.
  void flush();

  // A peer says that it has begun a collective, with this call. False: no correct rank says so.
  bool on_arrive(int peer, std::uint64_t sequence, const Fingerprint& theirs);
  // Whether a peer can have begun this one by now.
  bool is_in_reach(std::uint64_t sequence) const;
  // Even a collective that goes by message is announced in the lines: whoever called something else
  // may be looking nowhere else.
  void look_at_lines();

  bool has_arrived(int peer) const;
  bool all_have_arrived() const;
  // Those whose arrival the collective under way waits for, sorted.
  const std::vector<int>& company() const { return *company_; }
  // Of the last collective that was begun.
  std::uint64_t sequence() const { return sequence_; }

  // A difference was found: nothing of this group goes on until `settle` says who is wrong.
  bool is_disputed() const { return dispute_.is_open(); }
  Status settle(Nanoseconds now);
  Nanoseconds next_question() const { return dispute_.next(); }
  // A peer's answer to the question what it is doing.
  void on_report(int peer, const ActivityReport& report) {
    dispute_.note_report(peer, report, sequence_);
  }
  // Says that `peer` has called something else as the collective under way; its line tells what.
  void note_mismatch(int peer);
  // The same of any collective, when the caller knows what both have called.
  void note_mismatch(std::uint64_t sequence, const Fingerprint& mine, int peer,
                     const Fingerprint& theirs) {
    dispute_.open(sequence, mine, peer, theirs);
  }

 private:
  struct Announced {  // an arrival that was not looked at yet
    std::uint64_t sequence = 0;
    Fingerprint call;
  };
  struct Peer {
    std::deque<Announced> announced;
    std::uint64_t arrived = 0;  // the last collective at which it was seen with the same call
  };

  Peer& peer_at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
  const Peer& peer_at(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }
  bool differs(int peer) const;
  bool is_pairwise() const { return !launch_->to_peer.empty(); }
  void announce(const std::vector<int>& sends_to);
  bool may_wait(int peer) const;
  void tell(int peer);
  void look_at_announced();
  void compare(int peer, std::uint64_t sequence, const Fingerprint& theirs);
  void look_for_calls();

  const Members& members_;
  HostMemory* memory_ = nullptr;
  const Launch* launch_ = nullptr;  // of the collective under way
  std::uint64_t sequence_ = 0;
  const std::vector<int>* company_;
  std::vector<int> message_peers_;
  std::vector<int> untold_;  // who is told with the first data
  Nanoseconds untold_until_{0};
  bool held_ = false;  // told to the links, which may wait for more to send
  std::vector<Peer> peers_;
  std::vector<Fingerprint> history_;  // what this rank called, by number
  Dispute dispute_;
};

}  // namespace tutti::engine
