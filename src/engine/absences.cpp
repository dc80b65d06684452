#include "engine/absences.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/clock.hpp"
#include "engine/numbers.hpp"

namespace tutti::engine {

using namespace std::chrono_literals;
using transport::MessageKind;

namespace {

// How long ranks that did not come may take to say what they are doing instead.
constexpr Nanoseconds kAskFor = 250ms;
// The same where a link may have to be made first; and how long those who miss nobody themselves leave it to
// those who do to say who is late, before they ask everybody.
constexpr Nanoseconds kAskLateFor = 1s;
constexpr Nanoseconds kLeaveToOthers = 2s;
// After a slow rank was named nobody is for a while: a job whose steps take long would say nothing else.
constexpr Nanoseconds kQuiet = 30s;
// One of the first so many ranks of a group names who is slow.
constexpr int kSpeakers = 8;

}  // namespace

Absences::Absences(const Members& members)
    : members_(members), peers_(static_cast<std::size_t>(members.size()) + 1) {}  // and the switch

void Absences::note_left(int peer, std::uint64_t polls) {
  peers_[static_cast<std::size_t>(peer)].left = true;
  someone_gone_ = true;
  gone_at_ = polls;
}

void Absences::note_lost(int peer, std::uint64_t polls, const Status& why) {
  peers_[static_cast<std::size_t>(peer)].lost =
      why.ok() ? Status(Code::peer_lost, members_.where(peer) + " is gone") : why;
  someone_gone_ = true;
  gone_at_ = polls;
}

void Absences::note_report(int peer, const ActivityReport& report, std::string_view held_for) {
  Peer& state = peers_[static_cast<std::size_t>(peer)];
  state.report = describe(report, held_for);
  state.reported = report.sequence;
  state.waits = report.running != 0;
  state.told = report.told != 0;
}

Status Absences::verdict(const Operation* operation,
                         const std::function<bool(int peer)>& needs) const {
  if (!someone_gone_) return {};
  for (int peer = 0; peer < members_.size(); ++peer) {
    const Peer& state = peer_at(peer);
    // Whoever has left in good order closes its links, too: that is no loss.
    const bool lost = !state.left && !state.lost.ok();
    if (!lost && !(state.left && needs(peer))) continue;
    const std::uint64_t sequence = operation != nullptr ? operation->sequence : 0;
    const std::string during =
        operation != nullptr
            ? " during " + numbered(describe(operation->launch->fingerprint), sequence)
            : "";
    // A rank that stood still itself has lost all others, and nobody else is to blame.
    const bool own = lost && state.lost.peer() >= 0 && state.lost.peer() == state.lost.rank();
    const int culprit = own ? members_.rank() : peer;
    return {lost ? state.lost.code() : Code::peer_lost,
            fmt::format(
                "{}; group '{}' ends{}; restart the job or go on with a group without it",
                lost ? members_.retell(culprit, state.lost) : members_.where(culprit) + " has left",
                members_.name(), during),
            {members_.rank(), culprit, number_of(sequence)}};
  }
  return {};
}

Status Absences::check_deadline(const Operation& operation, const Attendance& attendance,
                                Nanoseconds now, bool& asked) {
  if (now < operation.deadline) return {};
  if (asked_until_.count() == 0) {
    ask(suspects(attendance), now);
    asked = true;
    return {};
  }
  if (now < asked_until_ && (leaves_to_others_ || !all_answered())) return {};
  // Whoever waits in an earlier collective is kept waiting by somebody: perhaps by one that this rank
  // does not talk to.
  if (at_fault(operation).empty() && asked_.size() < members_.others().size()) {
    if (members_.is_lazy() && now < operation.deadline + kAskLateFor + kLeaveToOthers) {
      asked_until_ = operation.deadline + kAskLateFor + kLeaveToOthers;
      leaves_to_others_ = true;
      return {};
    }
    ask(members_.others(), now);
    asked = true;
    return {};
  }
  return late_status(operation, attendance);
}

// Those who did not come. If all came that this rank talks to, one further away may be missing and
// keep them waiting, so everybody is asked.
std::vector<int> Absences::suspects(const Attendance& attendance) const {
  std::vector<int> missing;
  for (int peer : attendance.company())
    if (!attendance.has_arrived(peer)) missing.push_back(peer);
  if (missing.empty() && members_.is_lazy()) return attendance.waiting_for();
  return missing.empty() ? members_.others() : missing;
}

void Absences::ask(const std::vector<int>& whom, Nanoseconds now) {
  asked_until_ = deadline_after(now, members_.is_lazy() ? kAskLateFor : kAskFor);
  leaves_to_others_ = false;
  asked_ = whom;
  for (int peer : asked_) {
    peers_[static_cast<std::size_t>(peer)].report.clear();
    peers_[static_cast<std::size_t>(peer)].told = false;
    members_.send(peer, MessageKind::query, nullptr, 0);
  }
}

bool Absences::all_answered() const {
  return std::all_of(asked_.begin(), asked_.end(),
                     [&](int peer) { return !peer_at(peer).report.empty(); });
}

// Those who do not answer, then those who are busy with something else.
std::vector<int> Absences::at_fault(const Operation& operation) const {
  std::vector<int> silent, busy;
  for (int peer : asked_) {
    const Peer& state = peer_at(peer);
    if (state.report.empty())
      silent.push_back(peer);
    else if (state.reported < operation.sequence && !state.waits)
      busy.push_back(peer);
  }
  silent.insert(silent.end(), busy.begin(), busy.end());
  return silent;
}

// Whom to name: those at fault; if there are none, those who wait in an earlier collective; if all
// have come, whoever stopped on the way.
std::vector<int> Absences::late_ranks(const Operation& operation,
                                      const Attendance& attendance) const {
  std::vector<int> late = at_fault(operation);
  if (!late.empty()) return late;
  for (int peer : asked_)
    if (peer_at(peer).reported < operation.sequence) late.push_back(peer);
  return late.empty() ? attendance.waiting_for() : late;
}

std::string Absences::late_text(const Operation& operation, const Attendance& attendance,
                                const std::vector<int>& late, const std::string& when) const {
  const std::string what = fmt::format(
      "{} on group '{}'", numbered(to_string(operation.launch->collective), operation.sequence),
      members_.name());
  std::string text;
  for (int peer : late) {
    const std::string& report = peer_at(peer).report;
    if (!text.empty()) text += "; ";
    text += fmt::format("{} {} {} {}", members_.where(peer),
                        attendance.has_arrived(peer) ? attendance.trouble(peer) : "did not join",
                        what, when);
    if (peer != members_.rank())
      text += report.empty() ? "; it does not answer (stopped, or cut off)" : "; " + report;
  }
  return late.empty() ? fmt::format("{} did not finish {}", what, when) : text;
}

Status Absences::late_status(const Operation& operation, const Attendance& attendance) const {
  const auto late = late_ranks(operation, attendance);
  const auto when = fmt::format("within {:g} s", in_seconds(operation.launch->timeout));
  return {Code::timed_out,
          late_text(operation, attendance, late, when),
          {members_.rank(), late.empty() ? -1 : late[0], number_of(operation.sequence)}};
}

std::string Absences::name_slow(const Operation& operation, const Attendance& attendance,
                                Nanoseconds now, bool& asked) {
  if (slow_.since.count() == 0) slow_.since = now;
  // The deadline's own questions come with an error.
  if (slow_.told || now >= operation.deadline || now < quiet_until_) return {};
  if (now - slow_.since < kSlowAfter) return {};
  if (!slow_.asked) {
    slow_.asked = asked = true;
    // Those below are asked too: the lowest that waits speaks for all.
    auto whom = suspects(attendance);
    const int speakers = members_.is_lazy() ? 0 : std::min(members_.rank(), kSpeakers);
    for (int peer = 0; peer < speakers; ++peer)
      if (std::find(whom.begin(), whom.end(), peer) == whom.end()) whom.push_back(peer);
    ask(whom, now);
    return {};
  }
  if (now < asked_until_ && !all_answered()) return {};
  asked_until_ = Nanoseconds(0);
  slow_.told = true;
  quiet_until_ = now + kQuiet;
  // Where not all pairs have a link one speaks who misses somebody himself: whom that one answered first.
  auto late = members_.is_lazy() ? at_fault(operation) : late_ranks(operation, attendance);
  if (members_.is_lazy()) {
    std::erase_if(late, [&](int peer) { return peer_at(peer).told; });
    if (late.empty()) return {};
  }
  for (int peer = 0; peer < members_.rank() && !members_.is_lazy(); ++peer)
    if (std::find(late.begin(), late.end(), peer) == late.end()) return {};
  return late_text(operation, attendance, late,
                   fmt::format("for {:g} s (it has {:g} s)", in_seconds(now - slow_.since),
                               in_seconds(operation.launch->timeout)));
}

}  // namespace tutti::engine
