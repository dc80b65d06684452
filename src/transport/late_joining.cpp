// Joining goes on while the job runs, where links are made at their first use.
#include <unistd.h>

#include <algorithm>

#include "transport/joining.hpp"
#include "transport/pulse.hpp"

namespace tutti::transport {
namespace {

// How long a rank that is said to be gone may take to answer: others have missed it for longer by then.
constexpr Nanoseconds kDoubt = std::chrono::milliseconds(150);

}  // namespace

Status Joining::stay(Reactor& reactor) {
  reactor_ = &reactor;
  watch_ = {};
  for (auto& [peer, to] : courses_) to.process.reset();
  for (const Descriptor* listener :
       {&doors_.local, &doors_.network.loopback, &doors_.network.outward})
    if (*listener)
      if (Status status = reactor.add(listener->get(), *this); !status.ok()) return status;
  for (const auto& [id, attempt] : attempts_)
    if (Status status = watch(*attempt); !status.ok()) return status;
  return {};
}

Status Joining::watch(const Attempt& attempt) {
  return reactor_ == nullptr ? Status() : reactor_->add(attempt.descriptor(), *this);
}

void Joining::want(int peer, bool quietly) {
  Course& to = course(peer);
  to.quiet = quietly && (to.quiet || !to.used);
  to.used = true;
  ready_ = true;
}

void Joining::doubt(int peer, const Status& why) {
  Course& to = course(peer);
  if (to.linked || to.lost || !to.doubt.ok()) return;
  to.doubt = why;
  to.doubted_until = now() + kDoubt;
  // A link that it had begun to make may never be whole.
  const bool is_half_dead = std::any_of(to.slots.begin(), to.slots.end(), [](const Slot& slot) {
    return slot.filled() && is_hung_up(slot.connection.socket.get());
  });
  if (is_half_dead) {
    drop_attempts(peer);
    to.they_come = false;
  }
  want(peer);
}

// Called when a rank has proved who it is, and wants a connection.
bool Joining::admits(int peer) {
  if (!party_.lazy || (party_.is_eager(peer) && reactor_ == nullptr)) return true;
  Course& to = course(peer);
  if (to.linked || to.lost) return to.linked && peer > party_.rank;  // settle says what is wrong
  if (peer < party_.rank && is_dialling(to)) return false;
  // What this rank has begun goes on until it is refused there: who leaves in the middle of a handshake
  // would be taken for a stranger. But nothing comes of it (adopt).
  if (!to.they_come) take_route(peer, 0);
  to.they_come = true;
  return true;
}

bool Joining::is_dialling(const Course& to) const {
  return to.used && !to.they_come &&
         std::any_of(to.slots.begin(), to.slots.end(), [](const Slot& slot) {
           return slot.filled() || slot.retry_at == Nanoseconds::max();
         });
}

// With the connections that came of them.
void Joining::drop_attempts(int peer) {
  for (auto at = attempts_.begin(); at != attempts_.end();) {
    const bool is_its = at->second->peer() == peer;
    if (is_its) strangers_.leave(at->first);
    at = is_its ? attempts_.erase(at) : std::next(at);
  }
  take_route(peer, 0);
}

std::vector<Joining::Loss> Joining::attend() {
  std::vector<Loss> losses;
  ready_ = false;
  blame(accept_all(), -1, losses);
  std::vector<Id> ids;
  for (const auto& [id, attempt] : attempts_) ids.push_back(id);
  for (const Id id : ids) {
    const auto at = attempts_.find(id);
    if (at == attempts_.end()) continue;  // turned away, for another
    const int peer = at->second->peer();
    blame(step(id), peer, losses);
  }
  for (auto& [peer, to] : courses_) blame(start_due(peer, to), peer, losses);
  look_at_doubts(losses);
  return losses;
}

// What would end the joining of all ends one link here.
void Joining::blame(const Status& status, int peer, std::vector<Loss>& losses) {
  if (status.ok()) return;
  const int culprit = status.peer() >= 0 ? status.peer() : peer;
  if (culprit >= 0) return give_up(culprit, status, losses);
  for (auto& [each, to] : courses_)
    if (to.used && !to.linked) give_up(each, status, losses);
}

void Joining::give_up(int peer, const Status& why, std::vector<Loss>& losses) {
  Course& to = course(peer);
  if (to.linked || to.lost) return;
  const bool quiet = to.quiet && to.doubt.ok();
  drop_attempts(peer);
  to.lost = !quiet;
  to.used = to.quiet = to.they_come = false;
  losses.push_back({peer, to.doubt.ok() ? why : to.doubt, quiet});
}

void Joining::look_at_doubts(std::vector<Loss>& losses) {
  const Nanoseconds patience =
      party_.config.dead_after + Pulse::beat_every(party_.config.dead_after);
  for (const auto& [id, attempt] : attempts_)
    if (attempt->outgoing() && attempt->reached())
      course(attempt->peer()).unanswered_since = Nanoseconds::max();
  for (auto& [peer, to] : courses_) {
    if (to.linked || to.lost || !to.used) continue;
    const bool is_unreachable = party_.config.dead_after.count() != 0 &&
                                to.unanswered_since < now() - patience && !to.they_come;
    const bool is_refused = !to.doubt.ok() && to.refused_since != Nanoseconds::max();
    if (now() >= to.doubted_until || is_refused)
      give_up(peer, to.doubt, losses);
    else if (is_unreachable)
      give_up(peer, gone(peer, "its host does not answer"), losses);
  }
}

Nanoseconds Joining::due() const {
  Nanoseconds next = Nanoseconds::max();
  for (const auto& [id, attempt] : attempts_) next = std::min(next, attempt->deadline());
  for (const auto& [peer, to] : courses_) {
    if (to.linked || to.lost) continue;
    next = std::min(next, to.doubted_until);
    if (!connects_to(peer, to)) continue;
    for (const Slot& slot : to.slots)
      if (!slot.filled()) next = std::min(next, slot.retry_at);
  }
  return next;
}

void Joining::abandon() noexcept {
  for (const Descriptor* door : {&doors_.local, &doors_.network.loopback, &doors_.network.outward})
    if (*door) ::close(door->get());
}

}  // namespace tutti::transport
