#include "core/auth.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/bytes.hpp"
#include "core/check.hpp"

namespace tutti {
namespace {

constexpr std::uint32_t kHelloMagic = 0x49545554;  // "TUTI" on the wire
constexpr std::uint32_t kKnockMagic = 0x4B545554;  // "TUTK": TLS follows
constexpr std::uint32_t kTlsMagic = 0x53545554;    // "TUTS": speak TLS
constexpr std::size_t kKnockNonceBytes = 16;
constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kProofBytes = 32;
constexpr std::size_t kHelloBytes = 4 + 4 + kNonceBytes + 4 + 4 + 8;
static_assert(kKnockBytes == kHelloBytes && kKnockBytes == 4 + 4 + kKnockNonceBytes + kProofBytes);

void put_identity(ByteWriter& out, const Identity& identity) {
  out.put(identity.role);
  out.put(identity.rank);
  out.put(identity.epoch);
}

std::string hello_message(const std::string& nonce, const Identity& self) {
  ByteWriter head;
  head.put(kHelloMagic);
  head.put(kProtocolVersion);
  ByteWriter tail;
  put_identity(tail, self);
  return head.take() + nonce + tail.take();
}

struct Hello {
  std::uint32_t magic = 0;
  std::uint32_t version = 0;
  std::string nonce;
  Identity identity;
};

// `bytes` has kHelloBytes, so no read can fall short.
Hello read_hello(std::string_view bytes) {
  Hello hello;
  ByteReader head(bytes.substr(0, 8));
  ByteReader tail(bytes.substr(8 + kNonceBytes));
  hello.nonce = bytes.substr(8, kNonceBytes);
  const bool whole = head.get(hello.magic) && head.get(hello.version) &&
                     tail.get(hello.identity.role) && tail.get(hello.identity.rank) &&
                     tail.get(hello.identity.epoch);
  TUTTI_CHECK(whole);
  return hello;
}

Status tls_peer() {
  return {
      Code::mismatch,
      "the peer speaks TLS and this side does not; set TUTTI_TLS=1 on every rank and launcher of "
      "the job, or on none"};
}

Status plain_peer() {
  return {Code::mismatch,
          "the peer does not speak TLS and this side does (TUTTI_TLS=1); set it on every rank and "
          "launcher of the job, or on none"};
}

Status other_protocol() {
  return {Code::corrupt, "the peer does not speak tutti's protocol; is the address right?"};
}

Status check_version(std::uint32_t version) {
  if (version == kProtocolVersion) return {};
  return {Code::mismatch,
          fmt::format("the peer speaks protocol version {}, this side {}; use one version of "
                      "tutti in a job",
                      version, kProtocolVersion)};
}

Status check_opening(const Hello& hello) {
  if (hello.magic == kTlsMagic || hello.magic == kKnockMagic) return tls_peer();
  if (hello.magic != kHelloMagic) return other_protocol();
  return check_version(hello.version);
}

// Only after the peer has proved who it is: what a stranger claims is not worth an explanation.
Status check_identity(const Identity& peer, const Identity& self, const Identity& client) {
  if (peer.role != self.role)
    return Status(Code::mismatch,
                  fmt::format("the peer is there for role {}, this side for role {} "
                              "(1 store, 2 data, 3 local)",
                              peer.role, self.role));
  const bool asks = client.role == kRoleStore && client.epoch == 0;
  if (peer.epoch != self.epoch && !asks)
    return Status(Code::mismatch,
                  fmt::format("the peer belongs to another job or epoch ({}) than this side ({})",
                              peer.epoch, self.epoch));
  return {};
}

bool same_proof(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Status wrong_secret() {
  return Status(Code::corrupt, "the peer does not know this job's secret; is it of another job?");
}

}  // namespace

Handshake Handshake::client(std::string_view secret, Identity self) {
  return Handshake(secret, self, true);
}

Handshake Handshake::server(std::string_view secret, Identity self) {
  return Handshake(secret, self, false);
}

Handshake::Handshake(std::string_view secret, Identity self, bool is_client)
    : secret_(secret),
      self_(self),
      is_client_(is_client),
      state_(is_client ? State::wait_challenge : State::wait_hello) {
  if (!is_client) return;
  nonce_client_ = random_bytes(kNonceBytes);
  outbox_ = hello_message(nonce_client_, self_);
}

std::string Handshake::take_output() { return std::exchange(outbox_, {}); }

std::size_t Handshake::wants() const {
  switch (state_) {
    case State::wait_hello:
    case State::wait_challenge: return kHelloBytes - inbox_.size();
    case State::wait_proof: return kProofBytes - inbox_.size();
    case State::finished: return 0;
  }
  return 0;
}

Status Handshake::feed(std::string_view bytes) {
  TUTTI_CHECK(bytes.size() <= wants());
  inbox_.append(bytes);
  if (done() || wants() > 0) return {};
  Status status = on_message();
  inbox_.clear();
  return status;
}

Status Handshake::on_message() {
  switch (state_) {
    case State::wait_hello: return take_hello();
    case State::wait_challenge: return take_challenge();
    case State::wait_proof: return take_proof();
    case State::finished: return {};
  }
  return {};
}

Status Handshake::take_hello() {
  const Hello hello = read_hello(inbox_);
  if (hello.magic == kKnockMagic) {
    outbox_ = hello_message(std::string(kNonceBytes, '\0'), self_);  // which is no TLS
    return tls_peer();
  }
  if (hello.magic != kHelloMagic) return check_opening(hello);
  peer_ = hello.identity;
  nonce_client_ = hello.nonce;
  nonce_server_ = random_bytes(kNonceBytes);
  outbox_ = hello_message(nonce_server_, self_);
  state_ = State::wait_proof;
  // Answered even to another version, so that the other side can say what is wrong. Version 2 wants
  // a proof behind it before it reads any of it.
  if (hello.version != kProtocolVersion) outbox_.append(kProofBytes, '\0');
  return check_opening(hello);
}

Status Handshake::take_challenge() {
  const Hello hello = read_hello(inbox_);
  if (Status status = check_opening(hello); !status.ok()) return status;
  peer_ = hello.identity;
  nonce_server_ = hello.nonce;
  outbox_ = proof(true);
  state_ = State::wait_proof;
  return {};
}

Status Handshake::take_proof() {
  const bool proved = same_proof(inbox_, proof(!is_client_));
  // What the client proved deserves the server's proof; a stranger gets as many zeros.
  if (!is_client_) outbox_ = proved ? proof(false) : std::string(kProofBytes, '\0');
  if (!proved) return wrong_secret();
  if (Status status = check_identity(peer_, self_, is_client_ ? self_ : peer_); !status.ok())
    return status;
  state_ = State::finished;
  return {};
}

// The label differs by role, so that a proof cannot be sent back to the side that made it.
std::string Handshake::proof(bool of_client) const {
  ByteWriter identities;
  identities.put(kProtocolVersion);
  put_identity(identities, is_client_ ? self_ : peer_);
  put_identity(identities, is_client_ ? peer_ : self_);
  const std::string_view label = of_client ? "tutti client proof" : "tutti server proof";
  return hmac_sha256(
      secret_, std::string(label) + nonce_client_ + nonce_server_ + identities.take() + binding_);
}

std::string knock(std::string_view key) {
  ByteWriter head;
  head.put(kKnockMagic);
  head.put(kProtocolVersion);
  const std::string said = head.take() + random_bytes(kKnockNonceBytes);
  return said + hmac_sha256(key, said);
}

Status check_knock(std::string_view key, std::string_view bytes) {
  std::uint32_t magic = 0;
  std::uint32_t version = 0;
  ByteReader head(bytes);
  if (!head.get(magic)) return other_protocol();
  if (magic == kHelloMagic) return plain_peer();
  if (magic != kKnockMagic) return other_protocol();
  if (bytes.size() < kKnockBytes) return {};
  if (!head.get(version)) return other_protocol();
  if (Status status = check_version(version); !status.ok()) return status;
  const std::string_view said = bytes.substr(0, kKnockBytes - kProofBytes);
  return same_proof(bytes.substr(said.size(), kProofBytes), hmac_sha256(key, said))
             ? Status()
             : wrong_secret();
}

std::string knock_refusal() {
  ByteWriter message;
  message.put(kTlsMagic);
  message.put(kProtocolVersion);
  std::string bytes = message.take();
  bytes.resize(kHelloBytes);
  return bytes;
}

Status read_knock_refusal(std::string_view bytes) {
  std::uint32_t magic = 0;
  std::uint32_t version = 0;
  ByteReader head(bytes);
  if (!head.get(magic) || !head.get(version)) return {};
  if (magic != kTlsMagic && magic != kHelloMagic) return {};
  // Before there were knocks, none was said.
  if (Status status = check_version(version == 0 ? 3 : version); !status.ok()) return status;
  return magic == kTlsMagic ? wrong_secret() : plain_peer();
}

std::uint64_t epoch_of_job(std::string_view job) {
  std::uint64_t epoch = 0;
  if (!job.empty()) std::memcpy(&epoch, hmac_sha256("tutti epoch", job).data(), sizeof epoch);
  return epoch;
}

bool Handshake::done() const { return state_ == State::finished; }

const Identity& Handshake::peer() const {
  TUTTI_CHECK(done());
  return peer_;
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  for (std::size_t have = 0; have < count;) {
    const ssize_t got = ::getrandom(bytes.data() + have, count - have, 0);
    TUTTI_CHECK(got > 0 || errno == EINTR);
    have += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  return bytes;
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
  std::string digest(32, '\0');
  unsigned int size = 0;
  const unsigned char* made =
      HMAC(EVP_sha256(), key.empty() ? "" : key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(),
           reinterpret_cast<unsigned char*>(digest.data()), &size);
  TUTTI_CHECK(made != nullptr && size == digest.size());
  return digest;
}

}  // namespace tutti
