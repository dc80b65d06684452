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

}  // namespace

Absences::Absences(const Members& members)
    : members_(members), peers_(static_cast<std::size_t>(members.size())) {}

void Absences::note_gone(int peer, bool in_good_order, std::uint64_t polls) {
  Peer& state = peers_[static_cast<std::size_t>(peer)];
  (in_good_order ? state.left : state.lost) = true;
  someone_gone_ = true;
  gone_at_ = polls;
}

void Absences::note_report(int peer, const ActivityReport& report) {
  Peer& state = peers_[static_cast<std::size_t>(peer)];
  state.report = describe(report);
  state.reported = report.sequence;
  state.waits = report.running != 0;
}

Status Absences::verdict(const Operation* operation,
                         const std::function<bool(int peer)>& needs) const {
  if (!someone_gone_) return {};
  for (int peer = 0; peer < members_.size(); ++peer) {
    const Peer& state = peer_at(peer);
    if (!state.left && !state.lost) continue;
    if (state.left && !needs(peer)) continue;
    const std::uint64_t sequence = operation != nullptr ? operation->sequence : 0;
    const std::string during =
        operation != nullptr
            ? " during " + numbered(describe(operation->launch->fingerprint), sequence)
            : "";
    return {Code::peer_lost,
            fmt::format("{} {} group '{}'{}; restart the job or go on with a group without it",
                        members_.where(peer),
                        state.left ? "has left" : "died or lost its connection to", members_.name(),
                        during),
            {members_.rank(), peer, number_of(sequence)}};
  }
  return {};
}

Status Absences::check_deadline(const Operation& operation, const Arrivals& arrivals,
                                const Run& run, Nanoseconds now, bool& asked) {
  if (now < operation.deadline) return {};
  if (asked_until_.count() == 0) {
    ask(suspects(arrivals), now);
    asked = true;
    return {};
  }
  if (now < asked_until_ && !all_answered()) return {};
  // Whoever waits in an earlier collective is kept waiting by somebody: perhaps by one that this rank
  // does not talk to.
  if (at_fault(operation).empty() && asked_.size() < members_.others().size()) {
    ask(members_.others(), now);
    asked = true;
    return {};
  }
  return late_status(operation, arrivals, run);
}

// Those who did not come. If all came that this rank talks to, one further away may be missing and
// keep them waiting, so everybody is asked.
std::vector<int> Absences::suspects(const Arrivals& arrivals) const {
  std::vector<int> missing;
  for (int peer : arrivals.company())
    if (!arrivals.has_arrived(peer)) missing.push_back(peer);
  return missing.empty() ? members_.others() : missing;
}

void Absences::ask(const std::vector<int>& whom, Nanoseconds now) {
  asked_until_ = deadline_after(now, kAskFor);
  asked_ = whom;
  for (int peer : asked_) {
    peers_[static_cast<std::size_t>(peer)].report.clear();
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
std::vector<int> Absences::late_ranks(const Operation& operation, const Run& run) const {
  std::vector<int> late = at_fault(operation);
  if (!late.empty()) return late;
  for (int peer : asked_)
    if (peer_at(peer).reported < operation.sequence) late.push_back(peer);
  return late.empty() ? run.waiting_for() : late;
}

Status Absences::late_status(const Operation& operation, const Arrivals& arrivals,
                             const Run& run) const {
  const auto late = late_ranks(operation, run);
  const std::string what = fmt::format(
      "{} on group '{}'", numbered(to_string(operation.launch->collective), operation.sequence),
      members_.name());
  const double limit = in_seconds(operation.launch->timeout);
  std::string text;
  for (int peer : late) {
    const std::string& report = peer_at(peer).report;
    if (!text.empty()) text += "; ";
    text +=
        fmt::format("{} {} {} within {:g} s; {}", members_.where(peer),
                    arrivals.has_arrived(peer) ? "joined but did not finish" : "did not join", what,
                    limit, report.empty() ? "it does not answer (stopped, or cut off)" : report);
  }
  if (late.empty()) text = fmt::format("{} did not finish within {:g} s", what, limit);
  return {Code::timed_out,
          text,
          {members_.rank(), late.empty() ? -1 : late[0], number_of(operation.sequence)}};
}

}  // namespace tutti::engine
