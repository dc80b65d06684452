// core/tls.hpp - TLS 1.3 over a socket that is already connected (TUTTI_TLS=1).
//
// Both sides know each other by the job's secret (an external pre-shared key, with a fresh
// Diffie-Hellman exchange: who learns the secret later cannot read what was recorded), or by
// certificates of one authority, where TUTTI_TLS_CERT, TUTTI_TLS_KEY and TUTTI_TLS_CA are given. Before it
// the client knocks (core/auth): OpenSSL takes some 70 KiB for a connection, and a server spends them only
// on one who knows the secret. The handshake of core/auth goes on inside, as it does without.
//
// A stream reads and writes as recv(2) and sendmsg(2) do with MSG_DONTWAIT: bytes, or -1 with errno.
// The socket stays its owner's. Thread-safety: one may read while another writes.
//
//   auto context = TlsContext::create(config, secret);
//   TlsStream stream(*context, socket, TlsSide::client);
//   while (!*stream.step()) wait_ready(socket, stream.events(), deadline);
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "core/auth.hpp"
#include "core/secret.hpp"
#include "tutti/config.hpp"
#include "tutti/status.hpp"

struct ssl_ctx_st;
struct ssl_st;

namespace tutti {

// What every connection of one job or group shares.
class TlsContext {
 public:
  // AES-GCM keeps its promises for about 2^24.5 records of 16 KiB under one key; this is 2^22 of them.
  static constexpr std::uint64_t kBytesPerKey = std::uint64_t{1} << 36;

  // Null where config.tls is off. Code::invalid_argument for certificates that cannot be used.
  static Result<std::shared_ptr<const TlsContext>> create(
      const Config& config, std::string_view secret, std::uint64_t bytes_per_key = kBytesPerKey);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* get() const { return context_; }
  bool uses_certificates() const { return uses_certificates_; }
  std::string_view key() const { return key_; }
  std::string_view knock_key() const { return knock_key_; }
  std::uint64_t bytes_per_key() const { return bytes_per_key_; }

 private:
  TlsContext() = default;
  Status set_up(const Config& config);
  Status load_certificates(const Config& config);

  ssl_ctx_st* context_ = nullptr;
  bool uses_certificates_ = false;
  std::uint64_t bytes_per_key_ = kBytesPerKey;
  Secret key_;        // the pre-shared key, made from the secret,
  Secret knock_key_;  //   and another one
};

enum class TlsSide : std::uint8_t { client, server };

// A socket, and what went over it before OpenSSL had it: of a server, the knock and the heads of the first
// record and of the hello in it; of a client, the knock that it has to send and the head of the answer.
struct TlsSocket {
  int descriptor;
  std::array<unsigned char, kKnockBytes + 9> opening{};
  std::uint8_t came = 0;   // of `opening`
  std::uint8_t given = 0;  // of it, to OpenSSL
  std::string knock{};     // what is left of it to send
};

class TlsStream {
 public:
  TlsStream(std::shared_ptr<const TlsContext> context, int socket, TlsSide side);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Goes on with TLS's own handshake. True: it is done. Code::corrupt for one who does not know the
  // secret or has another certificate, Code::mismatch for one who does not speak TLS.
  Result<bool> step();
  // Whether the other side has knocked as one who knows the secret, and then begun TLS; a server's question.
  bool has_begun() const { return has_begun_; }
  // What poll(2) is to wait for before the next step.
  short events() const { return events_; }

  // 32 bytes that only the two ends of this connection know, once the handshake is done (RFC 8446,
  // 7.5): whoever sits between two connections has different ones on either side.
  std::string binding() const;

  // As many as there are, up to `bytes`: fewer means that there were no more a moment ago. `peek`
  // leaves them.
  ssize_t read(void* into, std::size_t bytes, bool peek = false);
  // Whoever is told that less was taken goes on with what was left: the last byte of a record counts as
  // taken only when all of it is out.
  ssize_t write(const iovec* parts, std::size_t count);
  ssize_t write(const void* data, std::size_t bytes);

 private:
  void begin();
  void renew_key();
  ssize_t write_record(const char* data, std::size_t bytes);
  Status read_opening();
  Status check_opening();
  Status refuse(Status why);
  Status failure(int error);

  const std::shared_ptr<const TlsContext> context_;
  TlsSocket socket_;
  const TlsSide side_;
  ssl_st* ssl_ = nullptr;
  bool has_begun_ = false;  // a server: TLS is what came
  bool is_done_ = false;
  short events_ = 0;
  std::mutex mutex_;
  int failure_ = 0;              // errno of a read: OpenSSL and the kernel say it only once
  std::string unsent_;           // a record that the socket did not take
  std::uint64_t key_bytes_ = 0;  // written under the present key
};

}  // namespace tutti
