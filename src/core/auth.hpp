// core/auth.hpp - the handshake that opens every connection: store, data, Unix socket.
//
// Both sides prove, by HMAC-SHA256 over both nonces, role, rank, epoch and protocol version, that
// they know the job's secret; nothing that a peer says is believed before that. Whoever connects
// proves first: a stranger learns nothing that was made with the secret. A state machine without
// sockets and clock: feed it bytes, send what it gives, ask whether it is done. The caller owns the
// 5 s deadline (kHandshakeTimeout). Messages are fixed-size, so nothing is allocated for a stranger.
//
//   client                                      server
//   hello  {magic, version, nonce_c, identity}  →
//          ←  challenge {magic, version, nonce_s, identity}
//   proof  {proof_c}                            →
//          ←  proof {proof_s}, or zeros: refused
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/status.hpp"

namespace tutti {

inline constexpr std::chrono::seconds kHandshakeTimeout{5};
inline constexpr std::uint32_t kProtocolVersion = 7;

// What a side says of itself. Bound into both proofs.
struct Identity {
  std::uint32_t role = 0;  // see Role
  std::int32_t rank = -1;
  // Which incarnation of the job or group; both sides must name the same. A client of the store may
  // say 0: it knows the secret and not yet the job, which it will be told.
  std::uint64_t epoch = 0;
};
enum Role : std::uint32_t { kRoleStore = 1, kRoleData = 2, kRoleLocal = 3 };

// The epoch that stands for a job's name; 0 for the empty one.
std::uint64_t epoch_of_job(std::string_view job);

class Handshake {
 public:
  // The secret's owner must outlive the handshake: a stranger is not worth a copy of it.
  static Handshake client(std::string_view secret, Identity self);
  static Handshake server(std::string_view secret, Identity self);

  // What this very TLS connection has of its own (TlsStream::binding); before anything is fed. Both proofs
  // cover it: they are worth nothing on another connection.
  void bind(std::string connection) { binding_ = std::move(connection); }

  // Bytes to send now, also after a failure; empties the outbox.
  std::string take_output();
  // How many more bytes it wants at least; 0 when done. Never read past it: what follows belongs to
  // the protocol above.
  std::size_t wants() const;
  // Takes exactly the bytes it asked for (fewer are fine, they add up). Code::corrupt for a
  // stranger, Code::mismatch for another version, role or epoch (a message naming both).
  Status feed(std::string_view bytes);
  bool done() const;
  // Only when done.
  const Identity& peer() const;

 private:
  enum class State : std::uint8_t { wait_hello, wait_challenge, wait_proof, finished };
  Handshake(std::string_view secret, Identity self, bool is_client);
  Status on_message();
  Status take_hello();
  Status take_challenge();
  Status take_proof();
  std::string proof(bool of_client) const;

  std::string_view secret_;
  Identity self_;
  Identity peer_;
  bool is_client_;
  State state_;
  std::string nonce_client_;
  std::string nonce_server_;
  std::string binding_;  // empty without TLS
  std::string inbox_;
  std::string outbox_;
};

// The knock, which comes before TLS, in the clear: it shows that whoever connects knows the job's secret,
// before a server takes the memory that TLS needs. Who hears one can repeat it: that buys him memory, and
// no entry. As long as a hello.
inline constexpr std::size_t kKnockBytes = 56;
std::string knock(std::string_view key);
// What a server does with the first bytes, at least 4 of them: Code::mismatch for one who speaks in the
// clear or of another version, Code::corrupt for anybody else who does not know the key.
Status check_knock(std::string_view key, std::string_view bytes);
// How it answers one that will not do, and what a client makes of such an answer; ok: it is none.
std::string knock_refusal();
Status read_knock_refusal(std::string_view bytes);

// Cryptographically random bytes.
std::string random_bytes(std::size_t count);
std::string hmac_sha256(std::string_view key, std::string_view message);

}  // namespace tutti
