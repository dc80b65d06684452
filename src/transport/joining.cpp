#include "transport/joining.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "core/clock.hpp"
#include "core/limits.hpp"

namespace tutti::transport {
namespace {

// Pauses of a rank that was turned away, or found a queue full: 10, 20, 40 … 320 ms.
constexpr Nanoseconds kFirstPause = std::chrono::milliseconds(10);
constexpr int kMostDoublings = 5;
constexpr int kBrokenGreetings = 6;
constexpr Nanoseconds kLookEvery = std::chrono::milliseconds(250);
// A door at which nobody listens for so long belongs to a rank that is gone. One that has given up says
// why in the store, a moment after it has closed its doors.
constexpr Nanoseconds kGoneAfter = std::chrono::milliseconds(500);

constexpr const char* kNoProof =
    "it said hello and left without a proof; another secret, or another epoch?";
constexpr const char* kProcessEnded = "its process has ended";

Subsystem subsystem_of(Door door) { return door == Door::local ? Subsystem::shm : Subsystem::net; }

}  // namespace

Joining::Joining(const Party& party, const Doors& doors, LinkedEndpoint& endpoint,
                 std::size_t places, Log log, const Clock& clock)
    : party_(party),
      doors_(doors),
      endpoint_(endpoint),
      log_(std::move(log)),
      clock_(clock),
      strangers_(places),
      refusals_(log_, Subsystem::net) {
  for (int peer = 0; peer < party_.size(); ++peer)
    if (peer != party_.rank && party_.is_eager(peer)) course(peer);
}

Joining::Course& Joining::course(int peer) {
  const auto [at, is_new] = courses_.try_emplace(peer);
  if (is_new) {
    at->second.routes = party_.routes(peer);
    take_route(peer, 0);
  }
  return at->second;
}

Status Joining::run(Nanoseconds timeout, const Opening::Watch& watch) {
  if (Status status = begin(timeout, watch); !status.ok()) return status;
  for (;;) {
    const Result<bool> done = turn(kLookEvery);
    if (!done.ok()) return done.status();
    if (*done) return {};
  }
}

Status Joining::begin(Nanoseconds timeout, Opening::Watch watch) {
  watch_ = std::move(watch);
  timeout_ = timeout;
  deadline_ = deadline_after(now(), timeout);
  look_at_ = now() + kLookEvery;
  if (Status status = check_routes(); !status.ok()) return status;
  return watch_processes();
}

Result<bool> Joining::turn(Nanoseconds longest_wait) {
  if (all_linked()) return true;
  if (now() >= deadline_) return overdue();
  if (now() >= look_at_) {
    if (Status status = look_around(); !status.ok()) return status;
    look_at_ = now() + kLookEvery;
  }
  if (Status status = start_due(); !status.ok()) return status;
  if (all_linked()) return true;  // by one that went through at once: nothing to wait for
  if (Status status = wait(longest_wait); !status.ok()) return status;
  if (Status status = accept_all(); !status.ok()) return status;
  return all_linked();
}

// Of ranks beside this one, as long as they are not linked: a link tells by itself.
Status Joining::watch_processes() {
  for (auto& [peer, to] : courses_) {
    const Address& theirs = party_.of(peer);
    if (!party_.self().shares_host(theirs) || party_.self().shares_process(theirs)) continue;
    if (theirs.pid_space.empty() || theirs.pid_space != party_.self().pid_space) continue;
    const auto pid = static_cast<pid_t>(theirs.pid);
    to.process = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!to.process && errno == ESRCH) return gone(peer, kProcessEnded);
  }
  return {};
}

// Whether somebody has given up, or a link is at its end before the last one is there.
Status Joining::look_around() {
  if (watch_)
    if (Status status = watch_(); !status.ok()) return status;
  return endpoint_.look_for_the_gone();
}

Status Joining::gone(int peer, const std::string& why) const {
  return {Code::peer_lost,
          fmt::format("rank {} ({}) is gone before it was linked to rank {}: {}", peer,
                      party_.of(peer).whereabouts(), party_.rank, why),
          {party_.rank, peer, 0}};
}

// A pair that has no route at all fails at once, on both sides.
Status Joining::check_routes() const {
  for (int peer = 0; peer < party_.size(); ++peer)
    if (peer != party_.rank && party_.routes(peer).empty())
      return cannot(peer, party_.self().shares_host(party_.of(peer))
                              ? "they are on one host, but no transport is allowed on both sides"
                              : "they are on different hosts, and no transport that both allow "
                                "reaches so far");
  return {};
}

bool Joining::all_linked() const {
  return std::all_of(courses_.begin(), courses_.end(), [this](const auto& each) {
    return each.second.linked || !party_.is_eager(each.first);
  });
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

// While ranks join, to those below; to whom it has messages for, anywhere.
bool Joining::connects_to(int peer, const Course& to) const {
  if (to.linked || to.lost || to.they_come) return false;
  return to.used || (peer < party_.rank && party_.is_eager(peer));
}

Status Joining::start_due() {
  for (auto& [peer, to] : courses_)
    if (Status status = start_due(peer, to); !status.ok()) return status;
  return {};
}

Status Joining::start_due(int peer, Course& to) {
  // A route that leads nowhere makes room for the next, which is due at once.
  for (std::size_t i = 0; i < to.slots.size() && connects_to(peer, to); ++i) {
    if (to.slots[i].filled() || to.slots[i].retry_at > now()) continue;
    const Transport* transport = to.transport();
    if (Status status = start(peer, static_cast<int>(i)); !status.ok()) return status;
    if (to.transport() != transport) i = static_cast<std::size_t>(-1);
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
  auto dialled = begin_connect(*address);
  if (!dialled.ok() || dialled->error != 0) try_again(slot);
  if (!dialled.ok()) return make_room_for(dialled.status());
  if (dialled->error != 0) {
    to.last_failure = errno_status("cannot connect to " + *text, dialled->error);
    return dialled->error == ECONNREFUSED ? refused(peer) : Status();
  }
  slot.retry_at = Nanoseconds::max();
  to.unanswered_since = std::min(to.unanswered_since, now());
  const Id id = ++attempts_made_;
  attempts_[id] = std::make_unique<Attempt>(party_, transport->door(), std::move(dialled->socket),
                                            *address, now() + kHandshakeTimeout,
                                            Attempt::Purpose{peer, transport, number});
  if (Status status = watch(*attempts_[id]); !status.ok()) return status;
  return step(id);
}

void Joining::try_again(Slot& slot) const {
  slot.retry_at = now() + kFirstPause * (1 << std::min(slot.turned_away, kMostDoublings));
  ++slot.turned_away;
}

Status Joining::refused(int peer) {
  Course& to = course(peer);
  if (to.refused_since == Nanoseconds::max()) to.refused_since = now();
  if (now() - to.refused_since < kGoneAfter) return {};
  return gone(peer,
              fmt::format("nobody listens at its door any more ({})", to.last_failure.message()));
}

Status Joining::accept_all() {
  Status status = accept(doors_.local, Door::local);
  if (status.ok()) status = accept(doors_.network.loopback, Door::network);
  if (status.ok()) status = accept(doors_.network.outward, Door::network);
  return status;
}

Status Joining::accept(const Descriptor& listener, Door door) {
  if (!listener) return {};
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    auto socket = accept_from(listener.get());
    if (socket.status().code() == Code::out_of_memory) return make_room_for(socket.status());
    if (!socket.ok() || !*socket) return {};
    ready_ = true;  // there may be more
    if (Status status = let_in(std::move(*socket), door); !status.ok()) return status;
  }
  return {};
}

// Whoever has sent something is read before the next one comes in.
Status Joining::let_in(Descriptor socket, Door door) {
  std::string whence = "?";
  if (door == Door::local) {
    const auto other = peer_credentials(socket.get());
    if (!other.ok()) return {};
    whence = fmt::format("process {} of user {}", other->pid, other->uid);
    if (other->uid != ::geteuid()) {
      refusals_.note(whence, "it is another user's", now());
      return {};
    }
  } else if (const auto other = peer_address(socket.get()); other.ok()) {
    whence = other->to_string();
  }
  const auto port = door == Door::local ? std::string::npos : whence.rfind(':');
  const Id id = ++attempts_made_;
  if (const auto out = strangers_.admit(id, whence.substr(0, port)))
    turn_away(*out, "it has proved nothing, and others want its place");
  attempts_[id] = std::make_unique<Attempt>(party_, door, std::move(socket), std::move(whence),
                                            now() + kHandshakeTimeout, this);
  if (Status status = watch(*attempts_[id]); !status.ok()) return status;
  return step(id);
}

void Joining::turn_away(Id id, const std::string& why) {
  const auto at = attempts_.find(id);
  if (at == attempts_.end()) return;
  refusals_.note(at->second->whence(), why, now());
  strangers_.leave(id);
  attempts_.erase(at);
}

// No descriptor is left. Strangers give theirs back first; if there are none, all are our own.
Status Joining::make_room_for(const Status& why) {
  if (const auto out = strangers_.least_claim()) {
    turn_away(*out, "it has proved nothing, and descriptors are short");
    return {};
  }
  const auto missing = std::count_if(courses_.begin(), courses_.end(),
                                     [](const auto& each) { return !each.second.linked; });
  return {why.code(),
          fmt::format("rank {} ({}) cannot link to {} more of {} ranks: {}; its limit is {} open "
                      "files (RLIMIT_NOFILE, ulimit -n), and a link takes up to three",
                      party_.rank, party_.self().whereabouts(), missing, party_.size(),
                      why.message(), allow_descriptors(0)),
          {party_.rank, -1, 0}};
}

// Until something comes, somebody is due, or a process ends; then whoever can goes on.
Status Joining::wait(Nanoseconds longest) {
  std::vector<pollfd> watched;
  std::vector<Id> ids;
  for (const auto& [id, attempt] : attempts_) {
    watched.push_back({attempt->descriptor(), attempt->events(), 0});
    ids.push_back(id);
  }
  for (const Descriptor* listener :
       {&doors_.local, &doors_.network.loopback, &doors_.network.outward})
    if (*listener) watched.push_back({listener->get(), POLLIN, 0});
  const std::size_t processes = watched.size();
  Nanoseconds until = deadline_;
  for (const auto& [id, attempt] : attempts_) until = std::min(until, attempt->deadline());
  std::vector<int> peers;
  for (const auto& [peer, to] : courses_) {
    if (to.linked) continue;
    if (to.process) {
      watched.push_back({to.process.get(), POLLIN, 0});
      peers.push_back(peer);
    }
    if (!connects_to(peer, to)) continue;
    for (const Slot& slot : to.slots)
      if (!slot.filled()) until = std::min(until, slot.retry_at);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      std::clamp<Nanoseconds>(until - now(), Nanoseconds(0), longest));
  // bounded: by the deadline
  (void)::poll(watched.data(), watched.size(), static_cast<int>(left.count()));
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (const auto at = attempts_.find(ids[i]);  // it may be dropped by now, for another
        at != attempts_.end() && (watched[i].revents != 0 || now() >= at->second->deadline()))
      if (Status status = step(ids[i]); !status.ok()) return status;
  // What a rank has sent before it ended was read just now.
  for (std::size_t i = 0; i < peers.size(); ++i)
    if (watched[processes + i].revents != 0 && !course(peers[i]).linked)
      return gone(peers[i], kProcessEnded);
  return {};
}

Status Joining::step(Id id) {
  Attempt& attempt = *attempts_.at(id);
  if (attempt.step() == Attempt::State::running && now() >= attempt.deadline())
    attempt.fail(Status(Code::timed_out, "no handshake within 5 s"));
  if (attempt.spoke()) strangers_.spoke(id);
  if (attempt.authenticated()) strangers_.leave(id);
  if (attempt.state() == Attempt::State::running) return {};
  const std::unique_ptr<Attempt> ended = std::move(attempts_.at(id));
  strangers_.leave(id);
  attempts_.erase(id);
  return settle(*ended);
}

Status Joining::settle(Attempt& attempt) {
  if (attempt.state() == Attempt::State::failed) return settle_failure(attempt);
  Course& to = course(attempt.peer());
  if (to.linked) {
    refusals_.note(attempt.whence(),
                   fmt::format("it says to be rank {}, which is linked already", attempt.peer()),
                   now());
    return {};
  }
  // Its rank has waited too long, as while this process was stopped, and comes again.
  if (!attempt.outgoing() && attempt.transport()->keeps_connections() &&
      is_hung_up(attempt.descriptor())) {
    to.last_failure = Status(Code::io, "it closed its connection while they were linked");
    return {};
  }
  const Status status = adopt(attempt);
  if (!to.linked) return status;
  to.process.reset();
  log_.info(
      subsystem_of(attempt.door()), "linked to rank {} ({}) by {}{}", attempt.peer(),
      party_.of(attempt.peer()).whereabouts(), attempt.transport()->name(),
      to.slots.size() == 1 ? std::string() : fmt::format(", {} connections", to.slots.size()));
  return status;
}

Status Joining::settle_failure(Attempt& attempt) {
  const Status& why = attempt.failure();
  if (attempt.peer() < 0) {
    // Whoever leaves by himself without a word was not turned away.
    if (why.code() != Code::io)
      refusals_.note(attempt.whence(), why.message(), now());
    else if (attempt.spoke())
      refusals_.note(attempt.whence(), kNoProof, now());
    return {};
  }
  Course& to = course(attempt.peer());
  to.last_failure = why;
  if (attempt.outgoing() && attempt.reached()) to.unanswered_since = Nanoseconds::max();
  if (!attempt.outgoing()) {
    // Whoever was refused, because this rank connects itself, does not come.
    to.they_come = to.they_come && std::any_of(to.slots.begin(), to.slots.end(),
                                               [](const Slot& slot) { return slot.filled(); });
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

// A peer that hangs up has met a crowd, or is about to go: it is tried again. What the two could not
// agree on does not get better; nor, on one host, does a greeting that breaks off time and again.
Status Joining::retry(Attempt& attempt) {
  Course& to = course(attempt.peer());
  const Status& why = attempt.failure();
  if (to.linked || attempt.transport() != to.transport()) return {};
  if (why.code() == Code::unsupported) return next_route(attempt.peer(), why);
  Slot& slot = to.slots[static_cast<std::size_t>(attempt.number())];
  const bool last = to.route + 1 == to.routes.size();
  if (attempt.authenticated() && attempt.door() == Door::local && !last &&
      slot.turned_away >= kBrokenGreetings)
    return next_route(attempt.peer(), why);
  try_again(slot);
  if (attempt.refused()) return refused(attempt.peer());
  to.refused_since = Nanoseconds::max();
  return {};
}

// There is a link when the last of its connections is there.
Status Joining::adopt(Attempt& attempt) {
  const int peer = attempt.peer();
  Course& to = course(peer);
  if (attempt.outgoing() && to.they_come) return {};  // its own connections are the ones that count
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

Status Joining::overdue() const {
  constexpr int kNamed = 3;
  std::string missing;
  int first = -1;
  int count = 0;
  for (const auto& [peer, to] : courses_) {
    if (to.linked || !party_.is_eager(peer)) continue;
    if (first < 0) first = peer;
    if (++count > kNamed) continue;
    missing += fmt::format("{}rank {} ({}{}{})", missing.empty() ? "" : ", ", peer,
                           party_.of(peer).whereabouts(), to.last_failure.ok() ? "" : "; ",
                           to.last_failure.message());
  }
  if (count > kNamed) missing += fmt::format(" and {} more", count - kNamed);
  const double seconds = in_seconds(timeout_);
  return Status(Code::timed_out,
                fmt::format("rank {} has no link after {:.1f} s to {}; look whether they run, at "
                            "firewalls between the hosts, or raise TUTTI_JOIN_TIMEOUT",
                            party_.rank, seconds, missing),
                {party_.rank, first, 0});
}

}  // namespace tutti::transport
