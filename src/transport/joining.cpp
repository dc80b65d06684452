#include "transport/joining.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdint>

#include "core/clock.hpp"

namespace tutti::transport {
namespace {

constexpr int kMaxTurnedAway = 6;
constexpr Nanoseconds kFirstPause = std::chrono::milliseconds(10);
constexpr Nanoseconds kLookEvery = std::chrono::milliseconds(250);
// Beyond one for each connection that may come: what strangers can hold open at the same time.
constexpr std::size_t kStrangers = 16;

Nanoseconds now() { return steady_clock().now(); }

Subsystem subsystem_of(Door door) { return door == Door::local ? Subsystem::shm : Subsystem::net; }

}  // namespace

Joining::Joining(const Party& party, const Doors& doors, LinkedEndpoint& endpoint, Log log)
    : party_(party),
      doors_(doors),
      endpoint_(endpoint),
      log_(std::move(log)),
      courses_(static_cast<std::size_t>(party.size())) {
  for (int peer = 0; peer < party_.size(); ++peer) {
    if (peer == party_.rank) continue;
    course(peer).routes = party_.routes(peer);
    int most = 0;
    for (const Transport* route : course(peer).routes)
      most = std::max(most, route->connections(party_.self(), party_.of(peer)));
    expected_ += static_cast<std::size_t>(most);
    take_route(peer, 0);
  }
}

Status Joining::run(Nanoseconds timeout, const Opening::Watch& watch) {
  deadline_ = deadline_after(now(), timeout);
  Nanoseconds look_at = now() + kLookEvery;
  course(party_.rank).linked = true;
  if (Status status = check_routes(); !status.ok()) return status;
  while (!all_linked()) {
    if (now() >= deadline_) return overdue(timeout);
    if (watch && now() >= look_at) {
      if (Status status = watch(); !status.ok()) return status;
      look_at = now() + kLookEvery;
    }
    if (Status status = start_due(); !status.ok()) return status;
    wait();
    if (Status status = accept_all(); !status.ok()) return status;
    if (Status status = step_all(); !status.ok()) return status;
  }
  return {};
}

// A pair that has no route at all fails at once, on both sides.
Status Joining::check_routes() const {
  for (int peer = 0; peer < party_.size(); ++peer)
    if (peer != party_.rank && course(peer).routes.empty())
      return cannot(peer, party_.self().shares_host(party_.of(peer))
                              ? "they are on one host, but no transport is allowed on both sides"
                              : "they are on different hosts, and no transport that both allow "
                                "reaches so far");
  return {};
}

bool Joining::all_linked() const {
  return std::all_of(courses_.begin(), courses_.end(), [](const Course& c) { return c.linked; });
}

void Joining::take_route(int peer, std::size_t route) {
  Course& to = course(peer);
  to.route = route;
  to.slots.clear();
  if (const Transport* transport = to.transport())
    to.slots.resize(
        static_cast<std::size_t>(transport->connections(party_.self(), party_.of(peer))));
}

Status Joining::next_route(int peer, const Status& why) {
  Course& to = course(peer);
  to.last_failure = why;
  log_.info(subsystem_of(to.transport()->door()), "no {} link to rank {}: {}",
            to.transport()->name(), peer, why.message());
  take_route(peer, to.route + 1);
  return to.transport() != nullptr ? Status() : cannot(peer, why.message());
}

Status Joining::start_due() {
  for (int peer = 0; peer < party_.rank; ++peer) {
    Course& to = course(peer);
    if (to.linked) continue;
    // A route that leads nowhere makes room for the next, which is due at once.
    for (std::size_t i = 0; i < to.slots.size(); ++i) {
      if (to.slots[i].filled() || to.slots[i].retry_at > now()) continue;
      const Transport* transport = to.transport();
      if (Status status = start(peer, static_cast<int>(i)); !status.ok()) return status;
      if (to.transport() != transport) i = static_cast<std::size_t>(-1);
    }
  }
  return {};
}

Result<std::string> Joining::address_of(int peer, Door door) const {
  const Address& theirs = party_.of(peer);
  if (door == Door::local) return theirs.local;
  const bool near = party_.self().shares_host(theirs) && !theirs.tcp_loopback.empty();
  const std::string& text = near ? theirs.tcp_loopback : theirs.tcp_outward;
  if (!text.empty()) return text;
  return cannot(peer, fmt::format("rank {} has no address that other hosts reach; set TUTTI_HOST "
                                  "or TUTTI_INTERFACE there",
                                  peer));
}

Status Joining::start(int peer, int number) {
  Course& to = course(peer);
  Slot& slot = to.slots[static_cast<std::size_t>(number)];
  const Transport* transport = to.transport();
  auto text = address_of(peer, transport->door());
  if (!text.ok()) return text.status();
  const bool local = transport->door() == Door::local;
  auto address = SocketAddress::parse(*text);
  if (!address.ok()) return local ? next_route(peer, address.status()) : address.status();
  auto socket =
      connect_to(*address, local ? deadline_ : std::min(deadline_, now() + kHandshakeTimeout));
  if (socket.status().code() == Code::out_of_memory) return out_of_descriptors(socket.status());
  if (!socket.ok() && local) return next_route(peer, socket.status());
  if (!socket.ok()) {
    to.last_failure = socket.status();
    slot.retry_at = now() + kFirstPause * 10;
    return {};
  }
  slot.retry_at = Nanoseconds::max();
  attempts_.push_back(std::make_unique<Attempt>(party_, transport->door(), std::move(*socket),
                                                now() + kHandshakeTimeout,
                                                Attempt::Purpose{peer, transport, number}));
  return {};
}

Status Joining::accept_all() {
  Status status = accept(doors_.local, Door::local);
  if (status.ok()) status = accept(doors_.network.loopback, Door::network);
  if (status.ok()) status = accept(doors_.network.outward, Door::network);
  return status;
}

Status Joining::accept(const Descriptor& listener, Door door) {
  if (!listener) return {};
  while (true) {
    auto socket = accept_from(listener.get());
    // Whoever knocks would keep on knocking until the deadline.
    if (socket.status().code() == Code::out_of_memory) return out_of_descriptors(socket.status());
    if (!socket.ok() || !*socket) return {};
    make_room();
    attempts_.push_back(
        std::make_unique<Attempt>(party_, door, std::move(*socket), now() + kHandshakeTimeout));
  }
}

// Strangers hold a bounded number of connections: the oldest that has proved nothing goes.
void Joining::make_room() {
  const auto unknown = [](const auto& a) { return !a->outgoing() && !a->authenticated(); };
  const auto held = std::count_if(attempts_.begin(), attempts_.end(), unknown);
  if (static_cast<std::size_t>(held) < expected_ + kStrangers) return;
  attempts_.erase(std::find_if(attempts_.begin(), attempts_.end(), unknown));
}

void Joining::wait() const {
  std::vector<pollfd> watched;
  for (const Descriptor* listener :
       {&doors_.local, &doors_.network.loopback, &doors_.network.outward})
    if (*listener) watched.push_back({listener->get(), POLLIN, 0});
  Nanoseconds until = deadline_;
  for (const auto& attempt : attempts_) {
    watched.push_back({attempt->descriptor(), POLLIN, 0});
    until = std::min(until, attempt->deadline());
    if (!attempt->began()) until = Nanoseconds(0);  // it has its first word to say
  }
  for (int peer = 0; peer < party_.rank; ++peer) {
    if (course(peer).linked) continue;
    for (const Slot& slot : course(peer).slots)
      if (!slot.filled()) until = std::min(until, slot.retry_at);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      std::clamp<Nanoseconds>(until - now(), Nanoseconds(0), kLookEvery));
  (void)::poll(watched.data(), watched.size(), static_cast<int>(left.count()));
}

Status Joining::step_all() {
  for (auto& attempt : attempts_) {
    if (attempt->step() == Attempt::State::running && now() >= attempt->deadline())
      attempt->fail(Status(Code::timed_out, "no handshake within 5 s"));
    if (attempt->state() == Attempt::State::running) continue;
    if (Status status = settle(*attempt); !status.ok()) return status;
  }
  std::erase_if(attempts_, [](const auto& a) { return a->state() != Attempt::State::running; });
  return {};
}

Status Joining::settle(Attempt& attempt) {
  if (attempt.state() == Attempt::State::failed) return settle_failure(attempt);
  Course& to = course(attempt.peer());
  // Twice the same rank: the link that is there stays.
  if (to.linked) return {};
  const Status status = adopt(attempt);
  if (to.linked)
    log_.info(
        subsystem_of(attempt.door()), "linked to rank {} ({}) by {}{}", attempt.peer(),
        party_.of(attempt.peer()).whereabouts(), attempt.transport()->name(),
        to.slots.size() == 1 ? std::string() : fmt::format(", {} connections", to.slots.size()));
  return status;
}

Status Joining::settle_failure(Attempt& attempt) {
  const Status& why = attempt.failure();
  if (attempt.peer() < 0) {
    log_.trace(Subsystem::net, "turned a stranger away: {}", why.message());
    return {};
  }
  Course& to = course(attempt.peer());
  to.last_failure = why;
  if (!attempt.outgoing()) {
    // The connecting side goes on to its next route, unless there is none.
    if (!to.linked && why.code() == Code::unsupported && attempt.transport() == to.routes.back())
      return cannot(attempt.peer(), why.message());
    return {};
  }
  // Another secret, epoch or version does not get better by trying again.
  if (why.code() == Code::corrupt || why.code() == Code::mismatch)
    return Status(
        why.code(),
        fmt::format("rank {} cannot link to rank {} ({}): {}", party_.rank, attempt.peer(),
                    party_.of(attempt.peer()).whereabouts(), why.message()),
        {party_.rank, attempt.peer(), 0});
  return retry(attempt);
}

// Over a network a peer may have had no room for one more; on the host itself it will not get better.
Status Joining::retry(Attempt& attempt) {
  Course& to = course(attempt.peer());
  const Status& why = attempt.failure();
  if (to.linked || attempt.transport() != to.transport()) return {};
  if (attempt.door() == Door::local || why.code() == Code::unsupported)
    return next_route(attempt.peer(), why);
  Slot& slot = to.slots[static_cast<std::size_t>(attempt.number())];
  if (++slot.turned_away > kMaxTurnedAway) return next_route(attempt.peer(), why);
  slot.retry_at = now() + kFirstPause * (1 << slot.turned_away);
  return {};
}

// There is a link when the last of its connections is there.
Status Joining::adopt(Attempt& attempt) {
  const int peer = attempt.peer();
  Course& to = course(peer);
  if (attempt.transport() != to.transport()) {
    const auto route = std::find(to.routes.begin(), to.routes.end(), attempt.transport());
    if (attempt.outgoing() || route == to.routes.end())
      return {};  // this route was given up meanwhile
    take_route(peer, static_cast<std::size_t>(route - to.routes.begin()));
  }
  Slot& slot = to.slots[static_cast<std::size_t>(attempt.number())];
  if (!slot.filled()) slot.connection = attempt.take_connection();
  if (!std::all_of(to.slots.begin(), to.slots.end(), [](const Slot& s) { return s.filled(); }))
    return {};
  std::vector<Connection> connections;
  for (Slot& each : to.slots) connections.push_back(std::move(each.connection));
  to.linked = true;
  return attempt.transport()->link(endpoint_, party_, peer, std::move(connections));
}

Status Joining::cannot(int peer, const std::string& tried) const {
  return Status(Code::unsupported,
                fmt::format("no transport links rank {} ({}) and rank {} ({}): {}; allowed here is "
                            "'{}' (TUTTI_TRANSPORT)",
                            party_.rank, party_.self().whereabouts(), peer,
                            party_.of(peer).whereabouts(), tried, party_.config.transport),
                {party_.rank, peer, 0});
}

Status Joining::out_of_descriptors(const Status& why) const {
  const auto missing = std::count_if(courses_.begin(), courses_.end(),
                                     [](const Course& course) { return !course.linked; });
  return {
      why.code(),
      fmt::format("rank {} ({}) cannot link to {} more of {} ranks: {}; a link takes up to three "
                  "descriptors, so raise the limit (ulimit -n)",
                  party_.rank, party_.self().whereabouts(), missing, party_.size(), why.message()),
      {party_.rank, -1, 0}};
}

Status Joining::overdue(Nanoseconds timeout) const {
  constexpr int kNamed = 3;
  std::string missing;
  int first = -1;
  int count = 0;
  for (int peer = 0; peer < party_.size(); ++peer) {
    const Course& to = course(peer);
    if (to.linked) continue;
    if (first < 0) first = peer;
    if (++count > kNamed) continue;
    missing += fmt::format("{}rank {} ({}{}{})", missing.empty() ? "" : ", ", peer,
                           party_.of(peer).whereabouts(), to.last_failure.ok() ? "" : "; ",
                           to.last_failure.message());
  }
  if (count > kNamed) missing += fmt::format(" and {} more", count - kNamed);
  const double seconds = in_seconds(timeout);
  return Status(Code::timed_out,
                fmt::format("rank {} has no link after {:.1f} s to {}; look whether they run, or "
                            "raise TUTTI_JOIN_TIMEOUT",
                            party_.rank, seconds, missing),
                {party_.rank, first, 0});
}

}  // namespace tutti::transport
