#include "engine/dispute.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/numbers.hpp"

namespace tutti::engine {
namespace {

using namespace std::chrono_literals;

// How long the others may take to come and to say what they have called, and how often those who
// have not come yet are asked again. Longer where those who were heard are tied: one more would decide.
constexpr Nanoseconds kHearFor = 250ms;
constexpr Nanoseconds kHearLateFor = 1s;  // where a link may have to be made first
constexpr Nanoseconds kHearWhileTied = 2s;
constexpr Nanoseconds kAskAgain = 25ms;

// What pairs know is nothing that all can compare.
Fingerprint without_pairs(Fingerprint call) {
  call.to_you = call.from_you = 0;
  return call;
}

}  // namespace

void Dispute::open(std::uint64_t sequence, const Fingerprint& mine, int peer,
                   const Fingerprint& theirs) {
  if (is_open()) return;
  sequence_ = sequence;
  peer_ = peer;
  mine_ = mine;
  theirs_ = theirs;
  calls_.assign(static_cast<std::size_t>(members_.size()), std::nullopt);
  note(members_.rank(), mine);
  note(peer, theirs);
}

void Dispute::note(int peer, const Fingerprint& call) {
  if (!knows(peer)) calls_[static_cast<std::size_t>(peer)] = without_pairs(call);
}

void Dispute::note_report(int peer, const ActivityReport& report, std::uint64_t last_begun) {
  if (!is_open()) return;
  if (report.sequence == sequence_) note(peer, report.call);
  if (report.sequence > sequence_ && last_begun > sequence_) note_agrees(peer);
}

Status Dispute::judge(Nanoseconds now) {
  const bool all_known =
      std::all_of(calls_.begin(), calls_.end(), [](const auto& call) { return call.has_value(); });
  if (asked_.count() == 0) asked_ = now;
  const Nanoseconds patience = members_.is_lazy() ? kHearLateFor : kHearFor;
  const bool had_time =
      now >= asked_ + patience && (now >= asked_ + kHearWhileTied || !votes().tied);
  if (all_known || had_time) return verdict();
  if (now >= next_question_) ask(now);
  return {};
}

void Dispute::ask(Nanoseconds now) {
  next_question_ = now + kAskAgain;
  for (int peer : members_.others())
    if (!knows(peer)) members_.send(peer, transport::MessageKind::query, nullptr, 0);
}

// Equal for equal calls only: not every difference has a word.
std::string Dispute::words_of(const Fingerprint& call) const {
  const Fingerprint mine = without_pairs(mine_);
  const std::uint32_t hash = call_hash_of(call);
  std::string words = describe(call);
  if (words == describe(mine) && hash != call_hash_of(mine))
    words += fmt::format(" [{:08x}]", hash);
  return words;
}

Vote Dispute::votes() const {
  std::vector<Said> said;
  for (int rank = 0; rank < members_.size(); ++rank)
    if (const auto& call = calls_[static_cast<std::size_t>(rank)])
      said.push_back({rank, words_of(*call)});
  return vote(said, [&](int rank) { return members_.where(rank); });
}

Status Dispute::verdict() const {
  Vote found = votes();
  if (found.culprit < 0) {  // only the two of them differ, in what only they know
    const int self = members_.rank();
    found.culprit = std::max(self, peer_);
    found.table = fmt::format("{} called {}, {} called {}", members_.where(self), describe(mine_),
                              members_.where(peer_), describe(theirs_));
  }
  for (int rank = 0; rank < members_.size(); ++rank)
    if (!knows(rank)) found.table += fmt::format(", {} did not come", members_.where(rank));
  return {Code::mismatch,
          fmt::format("ranks called different things {} group '{}': {}",
                      number_of(sequence_) == 0 ? "while they set up"
                                                : fmt::format("as #{} on", number_of(sequence_)),
                      members_.name(), found.table),
          {members_.rank(), found.culprit, number_of(sequence_)}};
}

}  // namespace tutti::engine
