#include "support/transports/wire_network.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "core/check.hpp"
#include "transport/tcp/tcp_link.hpp"

namespace tutti::transport {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kLargestPiece = 64 * 1024;
constexpr std::uint64_t kTinyPiece = 24;  // less than half a header
constexpr Nanoseconds kShortLatency = 20us;
constexpr std::uint64_t kJitter = 100'000;
// Links look again some time after one of their streams has ended (TcpLink's grace); a real rank wakes
// for that by itself.
constexpr Nanoseconds kLookAgain = 201ms;

void set_buffer(int socket, int bytes) {
  if (bytes > 0) (void)::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

}  // namespace

void WireNetwork::Way::on_ready(std::uint32_t events) {
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) readable = true;
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) closing = true;
}

WireNetwork::WireNetwork(const WireOptions& options, VirtualClock& clock)
    : clock_(clock),
      engine_(options.seed),
      uneven_(random(2) == 0),
      most_under_way_(random(2) == 0 ? 16 << 10 : 1 << 20),
      reactor_(*Reactor::create()),
      dead_(static_cast<std::size_t>(options.ranks)) {
  make_endpoints(options);
}

WireNetwork::~WireNetwork() { end(); }

void WireNetwork::make_endpoints(const WireOptions& options) {
  for (int rank = 0; rank < options.ranks; ++rank) {
    LinkedEndpoint::Parts parts;
    parts.rank = rank;
    parts.size = options.ranks;
    parts.window = *Window::create(rank, WindowShape::of(1, options.segment_bytes), false);
    endpoints_.push_back(*LinkedEndpoint::create(std::move(parts)));
  }
  const auto add = [&](int self, int peer, std::vector<ByteStream> streams) {
    const bool has_express = streams.size() > 1;  // then the last of them is it
    auto link = std::make_unique<TcpLink>(self, peer, std::move(streams), options.segment_bytes,
                                          "simulated", true, Nanoseconds(0), clock_, has_express);
    const Status added =
        endpoints_[static_cast<std::size_t>(self)]->add_message(peer, std::move(link));
    TUTTI_CHECK(added.ok());
  };
  for (int a = 0; a < options.ranks; ++a)
    for (int b = a + 1; b < options.ranks; ++b) {
      std::vector<ByteStream> of_b;
      add(a, b, connect_pair(a, b, of_b));
      add(b, a, std::move(of_b));
    }
}

std::vector<ByteStream> WireNetwork::connect_pair(int a, int b, std::vector<ByteStream>& of_b) {
  static constexpr int kBuffers[] = {0, 0, 16 << 10, 1};  // the kernel's own; its smallest
  std::vector<ByteStream> of_a;
  for (std::uint64_t streams = 1 + random(3); streams > 0; --streams) {
    Wire& wire = wires_.emplace_back();
    const int buffer = kBuffers[random(std::size(kBuffers))];
    of_a.push_back(connect(wire, 0, buffer));
    of_b.push_back(connect(wire, 1, buffer));
    for (const int side : {0, 1}) {
      Way& way = wire.ways[side];
      way.from = side == 0 ? a : b;
      way.to = side == 0 ? b : a;
      way.source = wire.relay[side].get();
      way.target = wire.relay[1 - side].get();
      way.latency = uneven_ ? latency_from_a_wide_range(engine_) : kShortLatency;
      way.tiny_in_ten = random(4) == 0 ? static_cast<unsigned>(random(10)) : 1;
    }
  }
  return of_a;
}

// The link's end of a connection; the relay keeps the other.
ByteStream WireNetwork::connect(Wire& wire, int side, int buffer_bytes) {
  int ends[2];
  const int made = ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends);
  TUTTI_CHECK(made == 0);
  for (const int each : ends) set_buffer(each, buffer_bytes);
  wire.relay[side] = Descriptor(ends[1]);
  const Status watched = reactor_.add(ends[1], wire.ways[side]);
  TUTTI_CHECK(watched.ok());
  return ByteStream(Descriptor(ends[0]));
}

std::unique_ptr<Endpoint> WireNetwork::endpoint(int rank) {
  return std::move(endpoints_[static_cast<std::size_t>(rank)]);
}

// ---- the relay

bool WireNetwork::move() {
  reactor_.look();
  bool moved = false;
  for (Wire& wire : wires_)
    for (Way& way : wire.ways) {
      while (take_in(way)) moved = true;
      moved |= hand_on(way);
    }
  return moved;
}

// A piece of what the source has sent.
bool WireNetwork::take_in(Way& way) {
  if (!way.readable || way.ending || way.under_way >= most_under_way_) return false;
  const std::size_t asked = 1 + random(random(10) < way.tiny_in_ten ? kTinyPiece : kLargestPiece);
  char bytes[kLargestPiece];
  const ssize_t got = ::recv(way.source, bytes, asked, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return way.readable = false;
  if (got <= 0) {
    begin_end(way);
    return true;
  }
  // Less than asked for: there was no more, but perhaps the end, which nobody tells twice.
  way.readable = static_cast<std::size_t>(got) == asked || way.closing;
  Nanoseconds due = clock_.now() + way.latency + Nanoseconds(random(kJitter));
  if (!way.pieces.empty()) due = std::max(due, way.pieces.back().due + Nanoseconds(1));
  way.pieces.push_back({due, std::string(bytes, static_cast<std::size_t>(got))});
  way.under_way += static_cast<std::size_t>(got);
  return true;
}

// What is due: often one piece alone, so that nobody reads more than that.
bool WireNetwork::hand_on(Way& way) {
  if (way.is_over()) return false;
  bool moved = false;
  while (!way.pieces.empty() && way.pieces.front().due <= clock_.now()) {
    if (!write_first(way)) return moved;
    moved = true;
    if (random(2) == 0) return true;
  }
  if (!way.ending || !way.pieces.empty() || way.end_due > clock_.now()) return moved;
  finish(way);
  return true;
}

bool WireNetwork::write_first(Way& way) {
  std::string& bytes = way.pieces.front().bytes;
  const ssize_t went = ::send(way.target, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (went < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  // Who has closed takes nothing any more.
  const std::size_t gone = went < 0 ? bytes.size() : static_cast<std::size_t>(went);
  way.under_way -= gone;
  bytes.erase(0, gone);
  if (bytes.empty()) way.pieces.pop_front();
  return true;
}

Nanoseconds WireNetwork::next_event() const {
  Nanoseconds next = Nanoseconds::max();
  const auto consider = [&](Nanoseconds when) {
    if (when > clock_.now()) next = std::min(next, when);
  };
  for (const Wire& wire : wires_)
    for (const Way& way : wire.ways) {
      if (way.is_over())
        consider(way.ended_at + kLookAgain);
      else if (!way.pieces.empty())
        consider(way.pieces.front().due);
      else if (way.ending)
        consider(way.end_due);
    }
  return next;
}

// ---- ends

void WireNetwork::begin_end(Way& way) {
  if (std::exchange(way.ending, true)) return;
  way.end_due = clock_.now() + way.latency + Nanoseconds(random(kJitter));
}

// Everything behind some byte of what is under way.
void WireNetwork::lose_some(Way& way) {
  if (way.under_way == 0 || random(3) == 0) return;
  std::size_t left = random(way.under_way + 1);
  way.under_way = left;
  for (Piece& piece : way.pieces) {
    piece.bytes.resize(std::min(piece.bytes.size(), left));
    left -= piece.bytes.size();
  }
  std::erase_if(way.pieces, [](const Piece& piece) { return piece.bytes.empty(); });
}

// The target reads the end of the stream. Towards a dead rank it cannot write any more, either.
void WireNetwork::finish(Way& way) {
  (void)::shutdown(way.target, dead_[static_cast<std::size_t>(way.from)] ? SHUT_RDWR : SHUT_WR);
  way.ended_at = clock_.now();
}

void WireNetwork::kill(int rank) {
  dead_[static_cast<std::size_t>(rank)] = true;
  for (Wire& wire : wires_)
    for (Way& way : wire.ways) {
      if (way.from == rank) {
        // What lies in its sockets has left it, or not.
        for (bool more = random(2) == 0; more && take_in(way);) {
        }
        lose_some(way);
        begin_end(way);
      } else if (way.to == rank) {
        way.pieces.clear();
        way.under_way = 0;
        way.ending = true;
        way.ended_at = clock_.now();
      }
    }
}

void WireNetwork::cut(int from, int to) {
  std::vector<Way*> ways;
  for (Wire& wire : wires_)
    for (Way& way : wire.ways)
      if (way.from == from && way.to == to) ways.push_back(&way);
  Way& cut = *ways[random(ways.size())];
  lose_some(cut);
  begin_end(cut);
}

void WireNetwork::end() {
  for (Wire& wire : wires_)
    for (Descriptor& relay : wire.relay) relay.reset();
}

}  // namespace tutti::transport
