// engine/absences.hpp - who of a group is gone, and who is late: the errors that say so.
//
// A peer that died, or broke its link, ends the group. One that left in good order does so only if
// it is still needed. When a deadline passes, those who did not come are asked what they are doing
// instead, and named with their answer.
//
// Thread-safety  none: the baton's holder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "engine/attendance.hpp"
#include "engine/fingerprint.hpp"
#include "engine/members.hpp"
#include "engine/operation.hpp"
#include "tutti/status.hpp"

namespace tutti::engine {

class Absences {
 public:
  explicit Absences(const Members& members);

  // A peer is gone, in good order or (`why`) not; `polls` is the engine's count at this moment.
  void note_left(int peer, std::uint64_t polls);
  void note_lost(int peer, std::uint64_t polls, const Status& why);
  void note_report(int peer, const ActivityReport& report, std::string_view held_for);

  // Somebody is gone, but the cause of it all may still be on its way: a poll that is under way may
  // have passed the link on which it waits; the one after it has not.
  bool must_wait(std::uint64_t polls) const { return someone_gone_ && polls < gone_at_ + 2; }
  // Whether the group can go on without those who are gone. `operation` is null between collectives.
  Status verdict(const Operation* operation, const std::function<bool(int peer)>& needs) const;

  // Once the operation's deadline has passed: asks, and says what came of it when all have answered
  // or had their time. Ok until then; `asked` becomes true when questions went out.
  Status check_deadline(const Operation& operation, const Attendance& attendance, Nanoseconds now,
                        bool& asked);
  // When an operation has waited for kSlowAfter: asks who is late, and says so once, with what each is
  // doing. A rank that lives may be as slow as the deadline allows; people should know. Empty
  // otherwise, and on ranks that leave it to a lower one which waits too.
  std::string name_slow(const Operation& operation, const Attendance& attendance, Nanoseconds now,
                        bool& asked);
  static constexpr Nanoseconds kSlowAfter = std::chrono::seconds(3);
  // When to look again.
  Nanoseconds next_deadline(const Operation& operation) const {
    return asked_until_.count() != 0 ? asked_until_ : operation.deadline;
  }
  // The operation is over.
  void forget_questions() {
    asked_until_ = Nanoseconds(0);
    leaves_to_others_ = false;
    slow_ = {};
  }

 private:
  struct Peer {
    bool left = false;           // in good order
    Status lost;                 // it died, or the link to it broke: why
    std::string report;          // its answer to our question
    std::uint64_t reported = 0;  // the collective at which it said to be
    bool waits = false;          //   and that it is still in it
    bool told = false;           //   and that it has told another of us before
  };
  // Of an operation that takes long.
  struct Slowness {
    Nanoseconds since{0};
    bool asked = false;
    bool told = false;
  };
  const Peer& peer_at(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }
  std::vector<int> suspects(const Attendance& attendance) const;
  void ask(const std::vector<int>& whom, Nanoseconds now);
  bool all_answered() const;
  std::vector<int> at_fault(const Operation& operation) const;
  std::vector<int> late_ranks(const Operation& operation, const Attendance& attendance) const;
  std::string late_text(const Operation& operation, const Attendance& attendance,
                        const std::vector<int>& late, const std::string& when) const;
  Status late_status(const Operation& operation, const Attendance& attendance) const;

  const Members& members_;
  std::vector<Peer> peers_;
  bool someone_gone_ = false;
  std::uint64_t gone_at_ = 0;   // in polls of the engine
  Nanoseconds asked_until_{0};  // when not zero: questions are out
  std::vector<int> asked_;
  bool leaves_to_others_ = false;  // to say who is late, until then
  Slowness slow_;
  Nanoseconds quiet_until_{0};  // nobody is named before
};

}  // namespace tutti::engine
