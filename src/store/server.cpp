// The store's server behind sockets: one thread, one epoll; all decisions are ServerState's.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <thread>
#include <unordered_map>

#include "core/byte_stream.hpp"
#include "core/exhausted.hpp"
#include "core/log.hpp"
#include "core/process_hooks.hpp"
#include "core/retransmission.hpp"
#include "core/threads.hpp"
#include "store/server_state.hpp"
#include "store/trust.hpp"
#include "tutti/store.hpp"

namespace tutti {
namespace {

using store::ConnectionId;
using store::ServerState;

constexpr ConnectionId kListener = 0;
constexpr ConnectionId kStop = 1;
constexpr ConnectionId kFirstConnection = 2;
// Bytes read from one connection before the others have their turn.
constexpr std::size_t kReadBytes = 64 * 1024;
// How long no connection is taken after the process ran out of descriptors, or of memory.
constexpr Nanoseconds kAcceptPause = std::chrono::milliseconds(100);

struct Socket {
  ByteStream stream;
  bool is_open = false;  // TLS's handshake is done, or there is none
  std::string unsent;
  std::size_t sent = 0;  // bytes of `unsent` that left already
};

Status watch(int epoll, int descriptor, ConnectionId id) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) != 0) return errno_status("epoll_ctl");
  return {};
}

// Of the other end, for people: "10.0.0.7", or "user 1000" of this host. A failure names another user.
Result<std::string> address_of_stranger(int socket, bool is_local) {
  if (!is_local) {
    const auto peer = peer_address(socket);
    return peer.ok() ? peer->host() : std::string("nowhere");
  }
  const auto peer = peer_credentials(socket);
  const std::string user = peer.ok() ? fmt::format("user {}", peer->uid) : "nobody";
  if (!peer.ok() || peer->uid != ::geteuid()) return Status(Code::corrupt, user);
  return user;
}

// What the thread owns. Dies with it.
class Loop {
 public:
  Loop(Descriptor listener, Descriptor epoll, Descriptor stop, bool is_local, ServerState state,
       store::Wires wires, Log log)
      : listener_(std::move(listener)),
        epoll_(std::move(epoll)),
        stop_(std::move(stop)),
        is_local_(is_local),
        state_(std::move(state)),
        wires_(std::move(wires)),
        refusals_(std::move(log), Subsystem::store) {}

  void run();
  void stop() const { ::eventfd_write(stop_.get(), 1); }

 private:
  template <class Body>
  void serve(ConnectionId id, const Body& body);
  void go_on(Nanoseconds now);
  void accept_some(Nanoseconds now);
  void take_in(Descriptor socket, Nanoseconds now);
  void read_from(ConnectionId id, Nanoseconds now);
  bool open(ConnectionId id, Socket& socket);
  void flush(ConnectionId id);
  void drop(ConnectionId id);
  void listen(bool on);
  int sleep_ms() const;

  Descriptor listener_;
  Descriptor epoll_;
  Descriptor stop_;
  bool is_local_;
  bool is_listening_ = true;
  Nanoseconds accept_again_{0};
  ServerState state_;
  store::Wires wires_;
  RefusalLog refusals_;
  std::unordered_map<ConnectionId, Socket> sockets_;
  ConnectionId next_id_ = kFirstConnection;
};

void Loop::run() {
  std::array<epoll_event, 64> events;
  while (true) {
    // bounded: stop() wakes it
    const int ready = ::epoll_wait(epoll_.get(), events.data(), events.size(), sleep_ms());
    const Nanoseconds now = steady_clock().now();
    for (int i = 0; i < ready; ++i) {
      const ConnectionId id = events[i].data.u64;
      if (id == kStop) return;
      if (id == kListener) continue;
      serve(id, [&] {
        if (events[i].events & EPOLLOUT) flush(id);
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_from(id, now);
      });
    }
    if (or_exhausted([&] { go_on(now); }).ok()) continue;
    accept_again_ = now + kAcceptPause;
    listen(false);
  }
}

// Memory that is not there for one connection ends that one, which may have lost a part of what it
// said: not the server.
template <class Body>
void Loop::serve(ConnectionId id, const Body& body) {
  if (!or_exhausted(body).ok()) drop(id);
}

void Loop::go_on(Nanoseconds now) {
  state_.advance(now);
  accept_some(now);
  for (ConnectionId id : state_.take_active()) serve(id, [&] { flush(id); });
  for (const auto& [address, why] : state_.take_refusals()) refusals_.note(address, why, now);
}

int Loop::sleep_ms() const {
  Nanoseconds next = state_.next_deadline();
  if (accept_again_ > Nanoseconds(0)) next = std::min(next, accept_again_);
  if (next == Nanoseconds::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - steady_clock().now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

// A bounded number at a time: those who are inside get their turn whatever comes through the door.
void Loop::accept_some(Nanoseconds now) {
  if (now < accept_again_) return;
  accept_again_ = Nanoseconds(0);
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    auto socket = accept_from(listener_.get());
    // Short of descriptors: the listener is not watched for a while, so that this thread does not spin.
    if (!socket.ok()) {
      state_.make_room();
      accept_again_ = now + kAcceptPause;
      return listen(false);
    }
    if (!*socket) break;
    take_in(std::move(*socket), now);
  }
  listen(true);
}

void Loop::take_in(Descriptor socket, Nanoseconds now) {
  auto from = address_of_stranger(socket.get(), is_local_);
  // Other users of this host have no business with this job.
  if (!from.ok()) return refusals_.note(from.status().message(), "another user", now);
  const ConnectionId id = next_id_++;
  if (!watch(epoll_.get(), socket.get(), id).ok()) return;
  serve(id, [&] {
    retransmit_evenly(socket.get(), wires_.dead_after);
    sockets_[id].stream = ByteStream(std::move(socket), wires_.tls, TlsSide::server);
    state_.connected(id, *from, now);
    // What it has said already tells it from those who wait in silence when the next one comes.
    read_from(id, now);
  });
}

void Loop::listen(bool on) {
  if (on == is_listening_) return;
  is_listening_ = on;
  epoll_event event{};
  event.events = on ? EPOLLIN : 0U;
  event.data.u64 = kListener;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
}

void Loop::read_from(ConnectionId id, Nanoseconds now) {
  const auto found = sockets_.find(id);
  if (found == sockets_.end()) return;
  if (!open(id, found->second)) return;
  char buffer[kReadBytes];
  ssize_t got = 0;
  do {
    got = found->second.stream.receive(buffer, sizeof buffer);
    if (got > 0)
      state_.received(id, {buffer, static_cast<std::size_t>(got)}, now);
    else if (got == 0 || errno != EAGAIN)
      return drop(id);
    // What TLS has taken from the socket already, epoll does not know of.
  } while (found->second.stream.is_encrypted() && got == sizeof buffer);
}

// Goes on with TLS's handshake; true when it is done.
bool Loop::open(ConnectionId id, Socket& socket) {
  if (socket.is_open) return true;
  const auto done = socket.stream.step();
  if (socket.stream.has_begun()) state_.spoke(id);
  if (done.ok() && *done) state_.bind(id, socket.stream.binding());
  if (done.ok()) return socket.is_open = *done;
  // Whoever leaves by himself is not in the log.
  if (done.status().code() == Code::io)
    drop(id);
  else
    state_.turn_away(id, done.status().message());
  return false;
}

void Loop::flush(ConnectionId id) {
  const auto found = sockets_.find(id);
  if (found == sockets_.end()) return;
  Socket& socket = found->second;
  if (socket.sent == socket.unsent.size()) {
    socket.unsent = state_.take_output(id);
    socket.sent = 0;
  } else {
    socket.unsent += state_.take_output(id);
  }
  const char* next = socket.unsent.data() + socket.sent;
  const std::size_t left = socket.unsent.size() - socket.sent;
  const ssize_t put = left > 0 ? socket.stream.send(next, left) : 0;
  if (put < 0 && errno != EAGAIN) return drop(id);
  socket.sent += put > 0 ? static_cast<std::size_t>(put) : 0;
  // Whoever is shown the door gets what fits, and is not waited for.
  if (state_.ended(id)) return drop(id);

  epoll_event event{};
  const bool is_done = socket.sent == socket.unsent.size();
  if (is_done) socket.unsent = {};
  if (is_done) socket.sent = 0;
  event.events = is_done ? EPOLLIN : EPOLLIN | EPOLLOUT;
  event.data.u64 = id;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket.stream.get(), &event);
}

void Loop::drop(ConnectionId id) {
  sockets_.erase(id);
  state_.disconnected(id);
}

class SocketServer final : public StoreServer {
 public:
  SocketServer(std::string address, int listener, std::unique_ptr<Loop> loop)
      : address_(std::move(address)),
        listener_(listener),
        loop_(std::move(loop)),
        close_in_child_(Hook::on_fork(&SocketServer::on_fork, this)),
        thread_(start_quiet_thread("tutti-store", [loop = loop_.get()] { loop->run(); })) {}

  ~SocketServer() override {
    if (fork_guard_.crossed()) {
      // The thread stayed in the parent: there is nobody to stop, and its data may be half-changed.
      thread_.detach();
      (void)loop_.release();
      return;
    }
    loop_->stop();
    thread_.join();  // bounded: the loop ends with its turn
  }

  std::string address() const override { return address_; }

 private:
  // A child that kept listening would make clients wait for a server that is gone.
  static void on_fork(void* self) noexcept {
    ::close(static_cast<const SocketServer*>(self)->listener_);
  }

  const std::string address_;
  const int listener_;  // owned by the loop
  ForkGuard fork_guard_;
  std::unique_ptr<Loop> loop_;
  Hook close_in_child_;
  std::thread thread_;
};

Result<std::unique_ptr<StoreServer>> serve(Descriptor listener, const std::string& secret,
                                           std::uint64_t epoch) {
  auto address = local_address(listener.get());
  if (!address.ok()) return address.status();
  if (Status status = store::check_secret_at(address->to_string(), secret); !status.ok())
    return status.annotate("store server");
  Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  Descriptor stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !stop) return errno_status("cannot start the store's server");
  if (Status status = watch(epoll.get(), listener.get(), kListener); !status.ok()) return status;
  if (Status status = watch(epoll.get(), stop.get(), kStop); !status.ok()) return status;
  auto wires = store::wires_at(address->to_string(), secret);
  if (!wires.ok()) return wires.status().annotate("store server");
  // For whoever is turned away. A server has no configuration of its own, and needs none.
  auto config = Config::from_environment();
  auto log = config.ok() ? Log::open(*config) : Result<Log>(Log());
  const int number = listener.get();
  auto loop = std::make_unique<Loop>(std::move(listener), std::move(epoll), std::move(stop),
                                     address->is_local(), ServerState(secret, epoch),
                                     *std::move(wires), log.ok() ? *log : Log());
  return std::unique_ptr<StoreServer>(
      std::make_unique<SocketServer>(address->to_string(), number, std::move(loop)));
}

}  // namespace

inline namespace [[gnu::visibility("default")]] v1 {

Result<std::unique_ptr<StoreServer>> StoreServer::listen(const std::string& address,
                                                         const std::string& secret,
                                                         std::uint64_t epoch) {
  auto parsed = SocketAddress::parse(address);
  if (!parsed.ok()) return parsed.status().annotate("store server");
  auto listener = listen_on(*parsed, SOMAXCONN);
  if (!listener.ok()) return listener.status().annotate("store server");
  return serve(std::move(*listener), secret, epoch);
}

Result<std::unique_ptr<StoreServer>> StoreServer::adopt(int listening_socket,
                                                        const std::string& secret,
                                                        std::uint64_t epoch) {
  int listens = 0;
  socklen_t size = sizeof listens;
  if (::getsockopt(listening_socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens)
    return Status(Code::invalid_argument, "store server: descriptor " +
                                              std::to_string(listening_socket) +
                                              " is not a socket that listens");
  Descriptor listener(listening_socket);
  if (Status status = set_nonblocking(listener.get()); !status.ok()) return status;
  if (::fcntl(listener.get(), F_SETFD, FD_CLOEXEC) != 0) return errno_status("fcntl");
  return serve(std::move(listener), secret, epoch);
}

}  // namespace v1
}  // namespace tutti
