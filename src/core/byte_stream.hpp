// core/byte_stream.hpp - a connected socket, in the clear or under TLS: the one place where bytes of
// connections between processes enter and leave.
//
// receive and send are recv(2) and sendmsg(2) with MSG_DONTWAIT, whatever lies between.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <string>

#include "core/clock.hpp"
#include "core/sockets.hpp"
#include "core/tls.hpp"

namespace tutti {

// A stream of somebody else's, or a socket in the clear.
class ByteStreamRef {
 public:
  ByteStreamRef(int socket, TlsStream* tls = nullptr) : socket_(socket), tls_(tls) {}

  int get() const noexcept { return socket_; }
  ssize_t receive(void* into, std::size_t bytes, bool peek = false) const;
  ssize_t send(const iovec* parts, std::size_t count) const;
  ssize_t send(const void* data, std::size_t bytes) const;

 private:
  ssize_t send_gathered(const iovec* parts, std::size_t count) const;

  int socket_;
  TlsStream* tls_;
};

class ByteStream {
 public:
  ByteStream() = default;
  // Under TLS where there is a context.
  explicit ByteStream(Descriptor socket, std::shared_ptr<const TlsContext> context = nullptr,
                      TlsSide side = TlsSide::client);

  int get() const noexcept { return socket_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }
  bool is_encrypted() const noexcept { return tls_ != nullptr; }

  // Goes on with TLS's handshake; true: it is done, or there is none. `events` are poll(2)'s for the
  // next step.
  Result<bool> step() { return tls_ ? tls_->step() : Result<bool>(true); }
  short events() const;
  // Whether what came so far is TLS.
  bool has_begun() const { return tls_ && tls_->has_begun(); }

  // For Handshake::bind, once the stream is open; empty in the clear.
  std::string binding() const { return tls_ ? tls_->binding() : std::string(); }

  operator ByteStreamRef() const noexcept { return {socket_.get(), tls_.get()}; }
  ssize_t receive(void* into, std::size_t bytes) {
    return ByteStreamRef(*this).receive(into, bytes);
  }
  ssize_t send(const void* data, std::size_t bytes) {
    return ByteStreamRef(*this).send(data, bytes);
  }

  // The same, to their ends: Code::timed_out at the deadline, Code::io for an error or an early end.
  Status open(Nanoseconds deadline);
  Status read_fully(void* into, std::size_t bytes, Nanoseconds deadline);
  Status write_fully(const void* data, std::size_t bytes, Nanoseconds deadline);

  // Without a word to the other side.
  void reset() noexcept { socket_.reset(); }
  // The socket of one that is in the clear.
  Descriptor take_socket() noexcept { return std::move(socket_); }

 private:
  Descriptor socket_;
  std::unique_ptr<TlsStream> tls_;
};

}  // namespace tutti
