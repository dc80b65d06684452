#include "transport/joining.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdint>

#include "transport/tcp/socket_options.hpp"

namespace tutti::transport {
namespace {

constexpr int kMaxTurnedAway = 6;
constexpr Nanoseconds kFirstPause = std::chrono::milliseconds(10);
// Beyond one for each connection that may come: what strangers can hold open at the same time.
constexpr std::size_t kStrangers = 16;

Nanoseconds now() { return steady_clock().now(); }

}  // namespace

Joining::Joining(const Party& party, const Descriptor& local, const TcpListeners& tcp,
                 LinkedEndpoint& endpoint, std::vector<int> lanes, const Config& config, Log log)
    : party_(party),
      local_(local),
      tcp_(tcp),
      endpoint_(endpoint),
      lanes_(std::move(lanes)),
      config_(config),
      log_(std::move(log)),
      courses_(static_cast<std::size_t>(party.size())) {
  for (int peer = 0; peer < party_.size(); ++peer) {
    course(peer).streams.resize(static_cast<std::size_t>(party_.streams(peer)));
    expected_ += course(peer).streams.size();
  }
}

Status Joining::run(Nanoseconds timeout) {
  deadline_ = deadline_after(now(), timeout);
  course(party_.rank).linked = true;
  if (Status status = check_ways(); !status.ok()) return status;
  while (!all_linked()) {
    if (now() >= deadline_) return overdue(timeout);
    if (Status status = start_due(); !status.ok()) return status;
    wait();
    accept(local_, true);
    accept(tcp_.loopback, false);
    accept(tcp_.outward, false);
    if (Status status = step_all(); !status.ok()) return status;
  }
  return {};
}

// A pair that has no way at all fails at once, on both sides.
Status Joining::check_ways() const {
  for (int peer = 0; peer < party_.size(); ++peer) {
    if (peer == party_.rank) continue;
    const bool tcp = party_.self().allowed.tcp && party_.of(peer).allowed.tcp;
    if (!tcp && party_.local_kind(peer) == LinkKind::tcp)
      return cannot(peer, party_.self().host_id == party_.of(peer).host_id
                              ? "they are on one host, but no transport is allowed on both sides"
                              : "they are on different hosts, and tcp is not allowed");
  }
  return {};
}

bool Joining::all_linked() const {
  return std::all_of(courses_.begin(), courses_.end(), [](const Course& c) { return c.linked; });
}

Status Joining::start_due() {
  for (int peer = 0; peer < party_.rank; ++peer) {
    Course& way = course(peer);
    if (way.linked || way.retry_at > now()) continue;
    if (!way.tried_local && party_.local_kind(peer) != LinkKind::tcp) {
      way.retry_at = Nanoseconds::max();
      start(peer);
    }
    if (way.retry_at == Nanoseconds::max()) continue;
    if (Status status = start_streams(peer); !status.ok()) return status;
  }
  return {};
}

// By the Unix socket; if that leads nowhere, TCP is next.
void Joining::start(int peer) {
  Course& way = course(peer);
  auto address = SocketAddress::parse(party_.of(peer).local);
  auto socket =
      address.ok() ? connect_to(*address, deadline_) : Result<Descriptor>(address.status());
  if (socket.ok()) {
    attempts_.push_back(std::make_unique<Attempt>(party_, peer, true, std::move(*socket),
                                                  now() + kHandshakeTimeout));
    return;
  }
  way.last_failure = socket.status();
  way.tried_local = true;
  way.retry_at = Nanoseconds(0);
}

Status Joining::start_streams(int peer) {
  for (int i = 0; i < party_.streams(peer); ++i) {
    Stream& stream = course(peer).streams[static_cast<std::size_t>(i)];
    if (stream.socket || stream.retry_at > now()) continue;
    stream.retry_at = Nanoseconds::max();
    if (Status status = start_tcp(peer, i); !status.ok()) return status;
  }
  return {};
}

Status Joining::start_tcp(int peer, int stream) {
  Course& way = course(peer);
  const Address& theirs = party_.of(peer);
  if (!party_.self().allowed.tcp || !theirs.allowed.tcp)
    return cannot(peer, way.last_failure.message());
  const bool same_host = party_.self().host_id == theirs.host_id && !theirs.tcp_loopback.empty();
  const std::string& text = same_host ? theirs.tcp_loopback : theirs.tcp_outward;
  if (text.empty())
    return cannot(peer, fmt::format("rank {} has no address that other hosts reach; set TUTTI_HOST "
                                    "or TUTTI_INTERFACE there",
                                    peer));
  auto address = SocketAddress::parse(text);
  if (!address.ok()) return address.status();
  auto socket = connect_to(*address, std::min(deadline_, now() + kHandshakeTimeout));
  if (!socket.ok()) {
    way.last_failure = socket.status();
    way.streams[static_cast<std::size_t>(stream)].retry_at = now() + kFirstPause * 10;
    return {};
  }
  attempts_.push_back(std::make_unique<Attempt>(party_, peer, false, std::move(*socket),
                                                now() + kHandshakeTimeout, stream));
  return {};
}

void Joining::accept(const Descriptor& listener, bool local) {
  if (!listener) return;
  while (true) {
    auto socket = accept_from(listener.get());
    if (!socket.ok() || !*socket) return;  // out of descriptors, say: the deadline will tell
    make_room();
    attempts_.push_back(std::make_unique<Attempt>(party_, -1, local, std::move(*socket),
                                                  now() + kHandshakeTimeout));
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
  for (const Descriptor* listener : {&local_, &tcp_.loopback, &tcp_.outward})
    if (*listener) watched.push_back({listener->get(), POLLIN, 0});
  Nanoseconds until = deadline_;
  for (const auto& attempt : attempts_) {
    watched.push_back({attempt->descriptor(), POLLIN, 0});
    until = std::min(until, attempt->deadline());
    if (!attempt->began()) until = Nanoseconds(0);  // it has its first word to say
  }
  for (int peer = 0; peer < party_.rank; ++peer) {
    const Course& way = course(peer);
    if (way.linked || way.retry_at == Nanoseconds::max()) continue;
    for (const Stream& stream : way.streams)
      if (!stream.socket) until = std::min(until, stream.retry_at);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      std::clamp<Nanoseconds>(until - now(), Nanoseconds(0), std::chrono::seconds(1)));
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
  Course& way = course(attempt.peer());
  // Twice the same rank: the link that is there stays.
  if (way.linked) return {};
  const Status status = adopt(attempt);
  if (way.linked)
    log_.info(attempt.local() ? Subsystem::shm : Subsystem::net, "linked to rank {} ({}) by {}{}",
              attempt.peer(), party_.of(attempt.peer()).whereabouts(), to_string(attempt.kind()),
              attempt.local() || way.streams.size() == 1
                  ? std::string()
                  : fmt::format(", {} streams", way.streams.size()));
  return status;
}

Status Joining::settle_failure(Attempt& attempt) {
  const Status& why = attempt.failure();
  if (attempt.peer() < 0) {
    log_.trace(Subsystem::net, "turned a stranger away: {}", why.message());
    return {};
  }
  Course& way = course(attempt.peer());
  way.last_failure = why;
  if (attempt.local())
    log_.info(Subsystem::shm, "no shared memory with rank {}: {}", attempt.peer(), why.message());
  const bool no_tcp = !party_.self().allowed.tcp || !party_.of(attempt.peer()).allowed.tcp;
  if (!attempt.outgoing()) {
    if (attempt.local() && no_tcp && why.code() == Code::unsupported)
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
  if (attempt.local()) {
    way.tried_local = true;
    way.retry_at = Nanoseconds(0);
    return {};
  }
  Stream& stream = way.streams[static_cast<std::size_t>(attempt.stream())];
  if (++stream.turned_away > kMaxTurnedAway) return cannot(attempt.peer(), why.message());
  stream.retry_at = now() + kFirstPause * (1 << stream.turned_away);
  return {};
}

Status Joining::adopt(Attempt& attempt) {
  const int peer = attempt.peer();
  if (!attempt.local()) return adopt_tcp(attempt);
  course(peer).linked = true;
  if (attempt.kind() == LinkKind::shm)
    return endpoint_.add_shm(peer, attempt.take_window(), lane_of(peer), lane_of(party_.rank),
                             attempt.take_socket(), attempt.process());
  endpoint_.add_inproc(peer, attempt.take_window(), lane_of(peer), lane_of(party_.rank));
  return {};
}

// There is a link when the last of its streams is there.
Status Joining::adopt_tcp(Attempt& attempt) {
  Course& way = course(attempt.peer());
  Stream& stream = way.streams[static_cast<std::size_t>(attempt.stream())];
  if (!stream.socket) stream.socket = attempt.take_socket();
  std::vector<Descriptor> sockets;
  for (const Stream& each : way.streams)
    if (!each.socket) return {};
  for (Stream& each : way.streams) sockets.push_back(std::move(each.socket));
  for (const Descriptor& socket : sockets)
    if (!choose_congestion_control(socket.get(), config_.tcp_congestion))
      return Status(
          Code::invalid_argument,
          fmt::format("TUTTI_TCP_CONGESTION: this kernel does not give us '{}'; "
                      "/proc/sys/net/ipv4/tcp_allowed_congestion_control lists what it has",
                      config_.tcp_congestion),
          {party_.rank, attempt.peer(), 0});
  way.linked = true;
  return endpoint_.add_tcp(attempt.peer(), std::move(sockets), config_.segment_bytes);
}

int Joining::lane_of(int rank) const {
  return static_cast<int>(std::lower_bound(lanes_.begin(), lanes_.end(), rank) - lanes_.begin());
}

Status Joining::cannot(int peer, const std::string& tried) const {
  return Status(Code::unsupported,
                fmt::format("no transport links rank {} ({}) and rank {} ({}): {}; allowed here is "
                            "'{}' (TUTTI_TRANSPORT)",
                            party_.rank, party_.self().whereabouts(), peer,
                            party_.of(peer).whereabouts(), tried, config_.transport),
                {party_.rank, peer, 0});
}

Status Joining::overdue(Nanoseconds timeout) const {
  std::string missing;
  int first = -1;
  for (int peer = 0; peer < party_.size(); ++peer) {
    const Course& way = course(peer);
    if (way.linked) continue;
    if (first < 0) first = peer;
    missing += fmt::format("{}rank {} ({}{}{})", missing.empty() ? "" : ", ", peer,
                           party_.of(peer).whereabouts(), way.last_failure.ok() ? "" : "; ",
                           way.last_failure.message());
  }
  const double seconds = std::chrono::duration<double>(timeout).count();
  return Status(Code::timed_out,
                fmt::format("rank {} has no link after {:.1f} s to {}; look whether they run, or "
                            "raise TUTTI_JOIN_TIMEOUT",
                            party_.rank, seconds, missing),
                {party_.rank, first, 0});
}

}  // namespace tutti::transport
