#include "core/sockets.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "core/words.hpp"

namespace tutti {
namespace {

Status bad_address(const std::string& text, std::string_view why) {
  return Status(
      Code::invalid_argument,
      fmt::format("'{}' is not an address: {} (host:port, [v6]:port or @name)", text, why));
}

Result<SocketAddress> parse_local(const std::string& text) {
  SocketAddress address;
  auto* local = reinterpret_cast<sockaddr_un*>(&address.storage);
  // The leading zero byte makes the name abstract; it takes the place of the '@'.
  if (text.size() < 2 || text.size() > sizeof local->sun_path)
    return bad_address(text, "a name has 1 to 107 letters");
  local->sun_family = AF_UNIX;
  std::memcpy(local->sun_path + 1, text.data() + 1, text.size() - 1);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
  return address;
}

Result<SocketAddress> look_up(const std::string& text, const std::string& host,
                              const std::string& port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    return Status(Code::io, fmt::format("cannot find host '{}' of address '{}': {}", host, text,
                                        ::gai_strerror(error)));
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

using NameCall = int (*)(int, sockaddr*, socklen_t*);
Result<SocketAddress> name_of(int socket, NameCall call, const char* what) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (call(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0)
    return errno_status(what);
  return address;
}

// poll(2) takes milliseconds; rounded up, so that a wait never turns into a busy loop.
int poll_timeout(Nanoseconds deadline) {
  if (deadline == Nanoseconds::max()) return -1;
  const auto left = deadline - steady_clock().now();
  if (left <= Nanoseconds(0)) return 0;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<long long>(ms, std::numeric_limits<int>::max()));
}

// A connect in progress ends here: writable means decided, SO_ERROR says how.
Status finish_connect(int socket, const SocketAddress& address, Nanoseconds deadline) {
  auto ready = wait_ready(socket, POLLOUT, deadline);
  if (!ready.ok()) return ready.status();
  if (!*ready)
    return Status(Code::timed_out, fmt::format("no answer from {} in time", address.to_string()));
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
    return errno_status("getsockopt");
  if (error != 0) return errno_status("cannot connect to " + address.to_string(), error);
  return {};
}

}  // namespace

void Descriptor::reset(int number) noexcept {
  if (number_ >= 0 && number_ != number) ::close(number_);
  number_ = number;
}

Status errno_status(const std::string& what) { return errno_status(what, errno); }

Status errno_status(const std::string& what, int error) {
  const bool used_up = error == ENOMEM || error == EMFILE || error == ENFILE;
  return Status(used_up ? Code::out_of_memory : Code::io, what + ": " + std::strerror(error));
}

Result<SocketAddress> SocketAddress::parse(const std::string& text) {
  if (!text.empty() && text.front() == '@') return parse_local(text);
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad_address(text, "it has no host and port");
  std::string host = text.substr(0, colon);
  const std::string port = text.substr(colon + 1);
  if (host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string::npos)
    return bad_address(text, "IPv6 wants brackets");
  auto number = parse_integer(port);
  if (host.empty() || !number.ok() || *number < 0 || *number > 65535)
    return bad_address(text, "the port must be a number from 0 to 65535");
  return look_up(text, host, std::to_string(*number));
}

std::string SocketAddress::to_string() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (storage.ss_family == AF_UNIX) {
    const auto* local = reinterpret_cast<const sockaddr_un*>(&storage);
    const std::size_t size = length - offsetof(sockaddr_un, sun_path);
    if (size < 1 || size > sizeof local->sun_path) return "@";
    return fmt::format("@{}", std::string_view(local->sun_path + 1, size - 1));
  }
  if (storage.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    return fmt::format("[{}]:{}", text, ntohs(v6->sin6_port));
  }
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
  ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
  return fmt::format("{}:{}", text, ntohs(v4->sin_port));
}

Result<Descriptor> listen_on(const SocketAddress& address, int backlog) {
  const int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  Descriptor socket(::socket(address.storage.ss_family, kind, 0));
  if (!socket) return errno_status("cannot make a socket");
  const int on = 1;
  // A port that was in use a moment ago may be taken again; meaningless for Unix sockets.
  if (!address.is_local() &&
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
    return errno_status("setsockopt");
  const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::bind(socket.get(), name, address.length) != 0 || ::listen(socket.get(), backlog) != 0)
    return errno_status("cannot listen at " + address.to_string());
  return socket;
}

Result<Descriptor> connect_to(const SocketAddress& address, Nanoseconds deadline) {
  const int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  Descriptor socket(::socket(address.storage.ss_family, kind, 0));
  if (!socket) return errno_status("cannot make a socket");
  set_no_delay(socket.get());
  const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::connect(socket.get(), name, address.length) == 0) return socket;
  if (errno != EINPROGRESS && errno != EINTR)
    return errno_status("cannot connect to " + address.to_string());
  if (Status status = finish_connect(socket.get(), address, deadline); !status.ok()) return status;
  return socket;
}

Result<Descriptor> accept_from(int listener) {
  while (true) {
    Descriptor socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      set_no_delay(socket.get());
      return socket;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Descriptor();
    // Whoever hung up before we came is no failure of ours.
    if (errno != EINTR && errno != ECONNABORTED) return errno_status("cannot accept a connection");
  }
}

Result<SocketAddress> local_address(int socket) {
  return name_of(socket, ::getsockname, "getsockname");
}

Result<SocketAddress> peer_address(int socket) {
  return name_of(socket, ::getpeername, "getpeername");
}

Result<Peer> peer_credentials(int socket) {
  ucred found{};
  socklen_t size = sizeof found;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &size) != 0)
    return errno_status("SO_PEERCRED");
  return Peer{found.pid, found.uid};
}

Status set_nonblocking(int descriptor, bool on) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  const int wanted = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
  if (flags < 0 || ::fcntl(descriptor, F_SETFL, wanted) != 0) return errno_status("fcntl");
  return {};
}

void set_no_delay(int socket) noexcept {
  const int on = 1;
  // A Unix socket says no to this, and needs it not.
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Result<bool> wait_ready(int descriptor, short events, Nanoseconds deadline) {
  while (true) {
    pollfd entry{descriptor, events, 0};
    const int ready = ::poll(&entry, 1, poll_timeout(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return errno_status("poll");
    if (steady_clock().now() >= deadline) return false;
  }
}

Status read_fully(int descriptor, void* data, std::size_t bytes, Nanoseconds deadline) {
  auto* next = static_cast<char*>(data);
  while (bytes > 0) {
    auto ready = wait_ready(descriptor, POLLIN, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready)
      return Status(Code::timed_out, fmt::format("{} bytes did not come in time", bytes));
    const ssize_t got = ::read(descriptor, next, bytes);
    if (got == 0) return Status(Code::io, "the other side closed the connection");
    if (got < 0 && errno != EAGAIN && errno != EINTR) return errno_status("cannot read");
    if (got < 0) continue;
    next += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return {};
}

Status write_fully(int descriptor, const void* data, std::size_t bytes, Nanoseconds deadline) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    auto ready = wait_ready(descriptor, POLLOUT, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready)
      return Status(Code::timed_out, fmt::format("{} bytes did not leave in time", bytes));
    // A peer that is gone is an error to report, not a signal to die of.
    ssize_t put = ::send(descriptor, next, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0 && errno == ENOTSOCK) put = ::write(descriptor, next, bytes);
    if (put < 0 && errno != EAGAIN && errno != EINTR) return errno_status("cannot write");
    if (put < 0) continue;
    next += put;
    bytes -= static_cast<std::size_t>(put);
  }
  return {};
}

}  // namespace tutti
