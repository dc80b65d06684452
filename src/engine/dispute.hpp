// engine/dispute.hpp - two ranks have called different things: what did everybody call, and who is wrong?
//
// Whoever finds a difference asks the others before it says anything: the one that it stumbled over
// may be right, and itself wrong. All who ask hear the same, and come to the same verdict (vote.hpp).
// Those who do not answer in time have no vote; they get more of it where the others are tied.
//
// Thread-safety  none: the baton's holder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "engine/fingerprint.hpp"
#include "engine/members.hpp"
#include "engine/vote.hpp"
#include "tutti/status.hpp"

namespace tutti::engine {

class Dispute {
 public:
  explicit Dispute(const Members& members) : members_(members) {}

  // This rank called `mine` as collective `sequence`, and `peer` called `theirs`. The first
  // difference is the cause; later ones may be its consequences, and are passed over.
  void open(std::uint64_t sequence, const Fingerprint& mine, int peer, const Fingerprint& theirs);
  bool is_open() const { return sequence_ != 0; }
  std::uint64_t sequence() const { return sequence_; }

  bool knows(int peer) const { return calls_[static_cast<std::size_t>(peer)].has_value(); }
  void note(int peer, const Fingerprint& call);
  // It has ended this collective, as this rank has: with the same call.
  void note_agrees(int peer) { note(peer, *calls_[static_cast<std::size_t>(members_.rank())]); }
  void note_report(int peer, const ActivityReport& report, std::uint64_t last_begun);

  // Asks whoever is unknown; the verdict when nobody is, or when they had their time. Ok until then.
  Status judge(Nanoseconds now);
  // When to judge again.
  Nanoseconds next() const { return next_question_; }

 private:
  void ask(Nanoseconds now);
  std::string words_of(const Fingerprint& call) const;
  Vote votes() const;
  Status verdict() const;

  const Members& members_;
  std::uint64_t sequence_ = 0;  // 0: there is none
  int peer_ = -1;               // over whom this rank stumbled
  Fingerprint mine_, theirs_;   // with what only the two know
  std::vector<std::optional<Fingerprint>> calls_;
  Nanoseconds asked_{0};  // when for the first time; 0: nobody was yet
  Nanoseconds next_question_{0};
};

}  // namespace tutti::engine
