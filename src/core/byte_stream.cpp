#include "core/byte_stream.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tutti {
namespace {

// The kernel takes few bytes in several parts more slowly than they are put together here.
constexpr std::size_t kFewBytes = 2048;

bool has_few_bytes(const iovec* parts, std::size_t count) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count && bytes <= kFewBytes; ++i) bytes += parts[i].iov_len;
  return count > 1 && bytes <= kFewBytes;
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

// Waits for `events`, or says that the time is up.
Status wait_for(int socket, short events, Nanoseconds deadline) {
  const auto ready = wait_ready(socket, events, deadline);
  if (!ready.ok()) return ready.status();
  return *ready ? Status() : Status(Code::timed_out, "the other side did not answer in time");
}

}  // namespace

ByteStream::ByteStream(Descriptor socket, std::shared_ptr<const TlsContext> context, TlsSide side)
    : socket_(std::move(socket)) {
  if (context) tls_ = std::make_unique<TlsStream>(std::move(context), socket_.get(), side);
}

short ByteStream::events() const { return tls_ ? tls_->events() : POLLIN; }

ssize_t ByteStreamRef::receive(void* into, std::size_t bytes, bool peek) const {
  if (tls_) return tls_->read(into, bytes, peek);
  ssize_t got = 0;
  do {
    got = ::recv(socket_, into, bytes, MSG_DONTWAIT | (peek ? MSG_PEEK : 0));
  } while (got < 0 && errno == EINTR);
  return got;
}

ssize_t ByteStreamRef::send(const iovec* parts, std::size_t count) const {
  if (tls_) return tls_->write(parts, count);
  if (has_few_bytes(parts, count)) return send_gathered(parts, count);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

ssize_t ByteStreamRef::send_gathered(const iovec* parts, std::size_t count) const {
  std::array<char, kFewBytes> gathered;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; bytes += parts[i++].iov_len)
    if (parts[i].iov_len > 0) std::memcpy(&gathered[bytes], parts[i].iov_base, parts[i].iov_len);
  ssize_t sent = 0;
  do {
    sent = ::send(socket_, gathered.data(), bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

ssize_t ByteStreamRef::send(const void* data, std::size_t bytes) const {
  const iovec part{const_cast<void*>(data), bytes};
  return send(&part, 1);
}

Status ByteStream::open(Nanoseconds deadline) {
  for (;;) {
    const auto done = step();
    if (!done.ok()) return done.status();
    if (*done) return {};
    if (Status status = wait_for(get(), events(), deadline); !status.ok()) return status;
  }
}

Status ByteStream::read_fully(void* into, std::size_t bytes, Nanoseconds deadline) {
  for (std::size_t have = 0; have < bytes;) {
    const ssize_t got = receive(static_cast<char*>(into) + have, bytes - have);
    if (got == 0) return {Code::io, "the other side hung up"};
    if (got < 0 && !would_block()) return errno_status("cannot read from a connection");
    if (got > 0) have += static_cast<std::size_t>(got);
    if (have == bytes) break;
    if (Status status = wait_for(get(), POLLIN, deadline); !status.ok()) return status;
  }
  return {};
}

Status ByteStream::write_fully(const void* data, std::size_t bytes, Nanoseconds deadline) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t put = send(static_cast<const char*>(data) + done, bytes - done);
    if (put < 0 && !would_block()) return errno_status("cannot write to a connection");
    if (put > 0) done += static_cast<std::size_t>(put);
    if (done == bytes) break;
    if (Status status = wait_for(get(), POLLOUT, deadline); !status.ok()) return status;
  }
  return {};
}

}  // namespace tutti
