// core/sockets.hpp - the few things that every user of sockets needs, with deadlines.
//
// Addresses are "host:port", "[v6]:port", or "@name" for an abstract Unix socket, which belongs to
// the network namespace and leaves no file behind. All sockets are close-on-exec. Deadlines are
// moments of steady_clock(); Nanoseconds::max() means none.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "tutti/status.hpp"

namespace tutti {

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Descriptor() { reset(); }

  int get() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }
  int release() noexcept { return std::exchange(number_, -1); }
  void reset(int number = -1) noexcept;

 private:
  int number_ = -1;
};

// "what: No such file or directory" with Code::io, from errno; Code::out_of_memory where memory or
// descriptors are used up.
Status errno_status(const std::string& what);
Status errno_status(const std::string& what, int error);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  bool is_local() const noexcept { return storage.ss_family == AF_UNIX; }
  std::string to_string() const;  // in the form that parse takes
  std::string host() const;       // the same without the port

  // All addresses of a host name, in the resolver's order; one for everything else. Names are looked
  // up beside the calling thread, which waits until the deadline at most (Code::timed_out).
  // Code::invalid_argument for another form.
  static Result<std::vector<SocketAddress>> resolve(const std::string& text, Nanoseconds deadline);
  // The first of them, within kLookUpTimeout.
  static Result<SocketAddress> parse(const std::string& text);
  static constexpr std::chrono::seconds kLookUpTimeout{10};
};

// Listens, non-blocking; port 0 takes any free one.
Result<Descriptor> listen_on(const SocketAddress& address, int backlog = 128);
// A non-blocking socket that is connected, or was refused, when this returns.
Result<Descriptor> connect_to(const SocketAddress& address, Nanoseconds deadline);
// The same for all addresses of `address`, one after the other; each has its share of the time.
Result<Descriptor> connect_to(const std::string& address, Nanoseconds deadline);
// A connection on its way, non-blocking: when the socket is writable, `connect_error` says what came of
// it (0, or an errno). `error`: it was refused at once (EAGAIN: a Unix socket's queue is full just now).
struct Dialled {
  Descriptor socket;
  int error = 0;
};
Result<Dialled> begin_connect(const SocketAddress& address);
int connect_error(int socket) noexcept;
// The other end has closed it, or it is broken; what came before may be unread.
bool is_hung_up(int socket) noexcept;
// The next connection, non-blocking; an empty Descriptor when there is none right now.
Result<Descriptor> accept_from(int listener);

// Of a socket that is bound, and of the other end.
Result<SocketAddress> local_address(int socket);
Result<SocketAddress> peer_address(int socket);
// Who is at the other end of a Unix socket.
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
};
Result<Peer> peer_credentials(int socket);

Status set_nonblocking(int descriptor, bool on = true);
// Small messages go at once. Not an error on a socket that has no such option.
void set_no_delay(int socket) noexcept;

// All bytes or a failure: Code::timed_out at the deadline, Code::io for an error or an early end.
// They work on blocking and on non-blocking descriptors.
Status read_fully(int descriptor, void* data, std::size_t bytes, Nanoseconds deadline);
Status write_fully(int descriptor, const void* data, std::size_t bytes, Nanoseconds deadline);
// Waits for `events` of poll(2). False: the deadline came first.
Result<bool> wait_ready(int descriptor, short events, Nanoseconds deadline);

}  // namespace tutti
