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
#include <condition_variable>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>

#include "core/exhausted.hpp"
#include "core/threads.hpp"
#include "core/words.hpp"

namespace tutti {
namespace {

// A full queue of a Unix socket is tried again this often.
constexpr Nanoseconds kCrowdedPause = std::chrono::milliseconds(5);
// No wait for the resolver is longer at once: a deadline of max() would overflow the clock's.
constexpr Nanoseconds kLookUpTurn = std::chrono::seconds(1);

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

Result<std::vector<SocketAddress>> look_up(const std::string& host, const std::string& port,
                                           int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  // bounded: in a thread that is waited for until the deadline, or a number
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    return Status(Code::io, ::gai_strerror(error));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.length = each->ai_addrlen;
  }
  ::freeaddrinfo(found);
  return addresses;
}

// A question to the resolver, which takes as long as it likes: whoever gives up leaves the answer to
// the thread that asked.
struct LookUp {
  std::mutex mutex;
  std::condition_variable answered;
  std::optional<Result<std::vector<SocketAddress>>> answer;
};

Result<std::vector<SocketAddress>> look_up_name(const std::string& host, const std::string& port,
                                                Nanoseconds deadline) {
  auto question = std::make_shared<LookUp>();
  try {
    start_quiet_thread("tutti-look-up", [question, host, port] {
      auto answer = or_exhausted([&] { return look_up(host, port, 0); });
      std::scoped_lock lock(question->mutex);
      question->answer = std::move(answer);
      question->answered.notify_all();
    }).detach();
  } catch (const std::system_error& error) {
    return Status(Code::out_of_memory, std::string("no thread to ask in: ") + error.what());
  }
  std::unique_lock lock(question->mutex);
  const auto is_answered = [&] { return question->answer.has_value(); };
  while (!is_answered() && steady_clock().now() < deadline)
    question->answered.wait_for(
        lock, std::min<Nanoseconds>(deadline - steady_clock().now(), kLookUpTurn));
  if (!is_answered()) return Status(Code::timed_out, "the resolver does not answer");
  return *std::move(question->answer);
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

Result<std::vector<SocketAddress>> SocketAddress::resolve(const std::string& text,
                                                          Nanoseconds deadline) {
  if (!text.empty() && text.front() == '@') {
    auto local = parse_local(text);
    if (!local.ok()) return local.status();
    return std::vector{*local};
  }
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
  const std::string service = std::to_string(*number);
  if (auto numeric = look_up(host, service, AI_NUMERICHOST); numeric.ok()) return numeric;
  auto named = look_up_name(host, service, deadline);
  if (named.ok()) return named;
  return Status(named.status().code(), fmt::format("cannot find host '{}' of address '{}': {}",
                                                   host, text, named.status().message()));
}

Result<SocketAddress> SocketAddress::parse(const std::string& text) {
  auto all = resolve(text, steady_clock().now() + kLookUpTimeout);
  if (!all.ok()) return all.status();
  return all->front();
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

std::string SocketAddress::host() const {
  const std::string text = to_string();
  return is_local() ? text : text.substr(0, text.rfind(':'));
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

Result<Dialled> begin_connect(const SocketAddress& address) {
  const int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  Dialled dialled{Descriptor(::socket(address.storage.ss_family, kind, 0))};
  if (!dialled.socket) return errno_status("cannot make a socket");
  set_no_delay(dialled.socket.get());
  const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
  // bounded: SOCK_NONBLOCK
  const bool under_way = ::connect(dialled.socket.get(), name, address.length) == 0 ||
                         errno == EINPROGRESS || errno == EINTR;
  if (!under_way) dialled.error = errno;
  return dialled;
}

int connect_error(int socket) noexcept {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

bool is_hung_up(int socket) noexcept {
  pollfd entry{socket, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

Result<Descriptor> connect_to(const SocketAddress& address, Nanoseconds deadline) {
  auto dialled = begin_connect(address);
  while (dialled.ok() && dialled->error == EAGAIN && steady_clock().now() < deadline) {
    std::this_thread::sleep_for(kCrowdedPause);
    dialled = begin_connect(address);
  }
  if (!dialled.ok()) return dialled.status();
  int error = dialled->error;
  if (error == 0) {
    auto decided = wait_ready(dialled->socket.get(), POLLOUT, deadline);
    if (!decided.ok()) return decided.status();
    if (!*decided)
      return Status(Code::timed_out, fmt::format("no answer from {} in time", address.to_string()));
    error = connect_error(dialled->socket.get());
  }
  if (error != 0) return errno_status("cannot connect to " + address.to_string(), error);
  return std::move(dialled->socket);
}

Result<Descriptor> connect_to(const std::string& address, Nanoseconds deadline) {
  auto all = SocketAddress::resolve(address, deadline);
  if (!all.ok()) return all.status();
  Status failure;
  for (std::size_t i = 0; i < all->size(); ++i) {
    const Nanoseconds now = steady_clock().now();
    const auto share = deadline == Nanoseconds::max()
                           ? Nanoseconds(SocketAddress::kLookUpTimeout)
                           : (deadline - now) / static_cast<std::int64_t>(all->size() - i);
    const bool is_last = i + 1 == all->size();
    auto socket = connect_to((*all)[i], is_last ? deadline : now + share);
    if (socket.ok()) return socket;
    failure = socket.status();
  }
  return failure;
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
    const int ready = ::poll(&entry, 1, poll_timeout(deadline));  // bounded: by the deadline
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
    const ssize_t got = ::read(descriptor, next, bytes);  // bounded: it is non-blocking
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
    if (put < 0 && errno == ENOTSOCK) put = ::write(descriptor, next, bytes);  // bounded: same
    if (put < 0 && errno != EAGAIN && errno != EINTR) return errno_status("cannot write");
    if (put < 0) continue;
    next += put;
    bytes -= static_cast<std::size_t>(put);
  }
  return {};
}

}  // namespace tutti
