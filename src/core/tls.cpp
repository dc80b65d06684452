#include "core/tls.hpp"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/auth.hpp"
#include "core/check.hpp"
#include "core/sockets.hpp"

namespace tutti {
namespace {

constexpr std::string_view kPskIdentity = "tutti";
constexpr std::size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr std::size_t kReadAheadBytes = 64 * 1024;
// OpenSSL takes as much memory as a hello says that it is long, up to 128 KiB. One of ours has about 250
// bytes, 1.5 KiB where OpenSSL offers keys that withstand quantum computers.
constexpr std::size_t kMaxHelloBytes = 2048;
constexpr std::size_t kMaxHelloBytesWithCertificates = 16 * 1024;
// A chain of them; by itself OpenSSL takes 100 KiB.
constexpr long kMaxCertificateBytes = 32 * 1024;

// ---- the socket, as OpenSSL sees it. Its own way writes without MSG_NOSIGNAL: SIGPIPE.

TlsSocket& socket_of(BIO* bio) { return *static_cast<TlsSocket*>(BIO_get_data(bio)); }

// The knock goes with the first bytes: a server that refuses it has then read both, and its words arrive.
int to_socket(BIO* bio, const char* data, int bytes) {
  BIO_clear_retry_flags(bio);
  auto& [descriptor, opening, came, given, knock] = socket_of(bio);
  iovec parts[] = {{knock.data(), knock.size()},
                   {const_cast<char*>(data), static_cast<std::size_t>(bytes)}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent > 0) {
    const std::size_t of_knock = std::min(static_cast<std::size_t>(sent), knock.size());
    knock.erase(0, of_knock);
    sent -= static_cast<ssize_t>(of_knock);
    if (sent == 0) {  // of what OpenSSL has given
      errno = EAGAIN;
      sent = -1;
    }
  }
  if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

// Of what a client hears, for the case that it is no TLS.
void keep_head(TlsSocket& socket, const char* bytes, ssize_t count) {
  for (ssize_t i = 0; i < count && socket.came < socket.opening.size(); ++i)
    socket.opening[socket.came++] = static_cast<unsigned char>(bytes[i]);
  socket.given = socket.came;
}

int from_socket(BIO* bio, char* into, int bytes) {
  BIO_clear_retry_flags(bio);
  TlsSocket& socket = socket_of(bio);
  if (const int left = socket.came - socket.given; left > 0) {
    const int taken = std::min(left, bytes);
    std::memcpy(into, socket.opening.data() + socket.given, static_cast<std::size_t>(taken));
    socket.given = static_cast<std::uint8_t>(socket.given + taken);
    return taken;
  }
  ssize_t got = 0;
  do {
    got = ::recv(socket.descriptor, into, static_cast<std::size_t>(bytes), MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_read(bio);
  keep_head(socket, into, got);
  return static_cast<int>(got);
}

long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO* make_bio(TlsSocket& socket) {
  static BIO_METHOD* const kMethod = [] {
    BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tutti socket");
    BIO_meth_set_write(method, &to_socket);
    BIO_meth_set_read(method, &from_socket);
    BIO_meth_set_ctrl(method, &control);
    return method;
  }();
  BIO* bio = BIO_new(kMethod);
  TUTTI_CHECK(bio != nullptr);
  BIO_set_data(bio, &socket);
  BIO_set_init(bio, 1);
  return bio;
}

// ---- the pre-shared key

const TlsContext& context_of(SSL* ssl) {
  return *static_cast<const TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
}

SSL_SESSION* psk_session(SSL* ssl) {
  static constexpr unsigned char kAes128GcmSha256[] = {0x13, 0x01};
  const std::string_view key = context_of(ssl).key();
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kAes128GcmSha256);
  SSL_SESSION* session = SSL_SESSION_new();
  const bool made =
      session != nullptr && cipher != nullptr &&
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()),
                                  key.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  if (made) return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int use_psk(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* identity_bytes,
            SSL_SESSION** session) {
  *identity = reinterpret_cast<const unsigned char*>(kPskIdentity.data());
  *identity_bytes = kPskIdentity.size();
  *session = psk_session(ssl);
  return *session != nullptr ? 1 : 0;
}

int find_psk(SSL* ssl, const unsigned char* identity, std::size_t identity_bytes,
             SSL_SESSION** session) {
  const std::string_view said(reinterpret_cast<const char*>(identity), identity_bytes);
  *session = said == kPskIdentity ? psk_session(ssl) : nullptr;
  return 1;
}

std::string last_error() {
  char text[256] = "no reason given";
  if (const unsigned long error = ERR_peek_last_error(); error != 0)
    ERR_error_string_n(error, text, sizeof text);
  return text;
}

Status cannot_use(const char* variable, const std::string& path) {
  return {Code::invalid_argument, fmt::format("{}={}: {}", variable, path, last_error())};
}

// The head of a handshake record, and in it that of a client's hello of at most `bytes`.
bool begins_a_hello(const unsigned char* head, std::size_t bytes) {
  const std::size_t record = head[3] << 8 | head[4];
  const std::size_t hello = head[6] << 16 | head[7] << 8 | head[8];
  return head[0] == SSL3_RT_HANDSHAKE && head[1] == SSL3_VERSION_MAJOR && record >= 4 &&
         record <= kRecordBytes && head[5] == SSL3_MT_CLIENT_HELLO && hello <= bytes;
}

std::string_view heard(const TlsSocket& socket) {
  return {reinterpret_cast<const char*>(socket.opening.data()), socket.came};
}

}  // namespace

Result<std::shared_ptr<const TlsContext>> TlsContext::create(const Config& config,
                                                             std::string_view secret,
                                                             std::uint64_t bytes_per_key) {
  if (!config.tls) return std::shared_ptr<const TlsContext>();
  std::shared_ptr<TlsContext> made(new TlsContext());
  made->bytes_per_key_ = bytes_per_key;
  made->key_ = hmac_sha256(secret, "tutti tls key");
  made->knock_key_ = hmac_sha256(secret, "tutti knock key");
  if (Status status = made->set_up(config); !status.ok()) return status.annotate("TUTTI_TLS");
  return std::shared_ptr<const TlsContext>(std::move(made));
}

Status TlsContext::set_up(const Config& config) {
  ERR_clear_error();
  context_ = SSL_CTX_new(TLS_method());
  if (context_ == nullptr) return {Code::internal, last_error()};
  SSL_CTX_set_app_data(context_, this);
  SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION);
  SSL_CTX_set_num_tickets(context_, 0);  // nobody comes back by one
  SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context_, SSL_OP_IGNORE_UNEXPECTED_EOF);
  // Buffers only while there is something in them: a job has many connections, and strangers come too.
  SSL_CTX_set_mode(context_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                 SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(context_, 1);
  // With a pre-shared key too, where there are no certificates: then a server that shows one instead of
  // knowing the key is refused.
  SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  uses_certificates_ = !(config.tls_cert + config.tls_key + config.tls_ca).empty();
  SSL_CTX_set_max_cert_list(context_, kMaxCertificateBytes);
  if (uses_certificates_) return load_certificates(config);
  SSL_CTX_set_psk_use_session_callback(context_, &use_psk);
  SSL_CTX_set_psk_find_session_callback(context_, &find_psk);
  // The hash of the pre-shared key's.
  if (SSL_CTX_set_ciphersuites(context_, "TLS_AES_128_GCM_SHA256") != 1)
    return {Code::unsupported, last_error()};
  return {};
}

Status TlsContext::load_certificates(const Config& config) {
  if (config.tls_cert.empty() || config.tls_key.empty() || config.tls_ca.empty())
    return {Code::invalid_argument,
            "certificates need all of TUTTI_TLS_CERT, TUTTI_TLS_KEY and TUTTI_TLS_CA"};
  if (SSL_CTX_use_certificate_chain_file(context_, config.tls_cert.c_str()) != 1)
    return cannot_use("TUTTI_TLS_CERT", config.tls_cert);
  if (SSL_CTX_use_PrivateKey_file(context_, config.tls_key.c_str(), SSL_FILETYPE_PEM) != 1)
    return cannot_use("TUTTI_TLS_KEY", config.tls_key);
  if (SSL_CTX_load_verify_file(context_, config.tls_ca.c_str()) != 1)
    return cannot_use("TUTTI_TLS_CA", config.tls_ca);
  return {};
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

TlsStream::TlsStream(std::shared_ptr<const TlsContext> context, int socket, TlsSide side)
    : context_(std::move(context)),
      socket_{.descriptor = socket},
      side_(side),
      events_(side == TlsSide::client ? POLLOUT : POLLIN) {}

// With the first step that has something to do: one who connects and says nothing costs nothing.
void TlsStream::begin() {
  ssl_ = SSL_new(context_->get());
  TUTTI_CHECK(ssl_ != nullptr);
  BIO* bio = make_bio(socket_);
  SSL_set_bio(ssl_, bio, bio);
  if (side_ == TlsSide::client) {
    socket_.knock = knock(context_->knock_key());
    return SSL_set_connect_state(ssl_);
  }
  SSL_set_accept_state(ssl_);
  // A server that has no certificate has nothing but the pre-shared key to let anybody in by.
  if (!context_->uses_certificates()) SSL_set_verify(ssl_, SSL_VERIFY_NONE, nullptr);
}

TlsStream::~TlsStream() {
  SSL_free(ssl_);
  wipe(unsent_);
}

Result<bool> TlsStream::step() {
  const std::lock_guard lock(mutex_);
  if (is_done_) return true;
  if (side_ == TlsSide::server && !has_begun_) {
    if (Status status = read_opening(); !status.ok()) return status;
    if (!has_begun_) return false;
  }
  if (ssl_ == nullptr) begin();
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_);
  if (done != 1) {
    const int error = SSL_get_error(ssl_, done);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return failure(error);
    events_ = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    return false;
  }
  // Nobody gets here without it, as the context is set up; this costs nothing and says so.
  if (!context_->uses_certificates() && SSL_session_reused(ssl_) != 1)
    return Status(Code::corrupt, "the peer's TLS did not use the job's secret");
  SSL_set_default_read_buffer_len(ssl_, kReadAheadBytes);
  is_done_ = true;
  events_ = POLLIN;
  return true;
}

// A server's first look, before anything is allocated.
Status TlsStream::read_opening() {
  auto& [socket, opening, came, given, unused] = socket_;
  while (came < opening.size()) {
    const ssize_t got = ::recv(socket, opening.data() + came, opening.size() - came, MSG_DONTWAIT);
    if (got == 0) return {Code::io, "the other side hung up before it said anything"};
    if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
      return errno_status("a new connection broke");
    if (got < 0) return {};
    came = static_cast<std::uint8_t>(came + got);
    if (Status status = check_opening(); !status.ok()) return refuse(std::move(status));
  }
  has_begun_ = true;
  given = kKnockBytes;
  return {};
}

Status TlsStream::check_opening() {
  const std::string_view said = heard(socket_);
  if (said.size() < 4) return {};
  if (Status status = check_knock(context_->knock_key(), said); !status.ok()) return status;
  // A knock can be repeated, so that what follows is looked at too.
  const std::size_t most =
      context_->uses_certificates() ? kMaxHelloBytesWithCertificates : kMaxHelloBytes;
  if (said.size() < socket_.opening.size() ||
      begins_a_hello(socket_.opening.data() + kKnockBytes, most))
    return {};
  return {Code::corrupt, "the peer does not begin TLS as a rank or launcher would"};
}

// In words that he understands, whether he speaks TLS or not.
Status TlsStream::refuse(Status why) {
  // Closed with bytes unread, the connection would take our words back (a reset).
  char unread[4096];
  (void)::recv(socket_.descriptor, unread, sizeof unread, MSG_DONTWAIT);
  const std::string words = knock_refusal();
  (void)::send(socket_.descriptor, words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return why;
}

Status TlsStream::failure(int error) {
  if (side_ == TlsSide::client)
    if (Status refused = read_knock_refusal(heard(socket_)); !refused.ok()) return refused;
  if (const long verdict = SSL_get_verify_result(ssl_);
      context_->uses_certificates() && verdict != X509_V_OK)
    return {Code::corrupt, fmt::format("the peer's certificate is refused: {}",
                                       X509_verify_cert_error_string(verdict))};
  if (error != SSL_ERROR_SSL) return {Code::io, "the other side hung up in TLS's handshake"};
  const char* why = context_->uses_certificates()
                        ? "the peer has no certificate that fits, or refuses ours"
                        : "the peer does not know this job's secret; is it of another job?";
  return {Code::corrupt, fmt::format("TLS: {} ({})", why, last_error())};
}

std::string TlsStream::binding() const {
  static constexpr std::string_view kLabel = "EXPORTER-tutti-handshake";
  std::string made(32, '\0');
  const int exported =
      SSL_export_keying_material(ssl_, reinterpret_cast<unsigned char*>(made.data()), made.size(),
                                 kLabel.data(), kLabel.size(), nullptr, 0, 0);
  TUTTI_CHECK(exported == 1);
  return made;
}

// Between two records whoever writes has its turn.
ssize_t TlsStream::read(void* into, std::size_t bytes, bool peek) {
  std::size_t total = 0;
  while (total < bytes && failure_ == 0) {
    const std::lock_guard lock(mutex_);
    std::size_t got = 0;
    ERR_clear_error();
    errno = 0;
    char* next = static_cast<char*>(into) + total;
    const int ok = peek ? SSL_peek_ex(ssl_, next, bytes - total, &got)
                        : SSL_read_ex(ssl_, next, bytes - total, &got);
    if (ok == 1) {
      total += got;
      if (peek) break;
      continue;
    }
    const int error = SSL_get_error(ssl_, ok);
    if (error == SSL_ERROR_SSL) failure_ = EBADMSG;    // somebody changed what was sent
    if (error == SSL_ERROR_SYSCALL) failure_ = errno;  // 0: the end
    if (total > 0) break;  // an end is met again, and a failure remembered
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) break;
    errno = EAGAIN;
    return -1;
  }
  if (total > 0 || failure_ == 0) return static_cast<ssize_t>(total);
  errno = failure_;
  return -1;
}

// Until its announcement is out, OpenSSL does not read either: two ends with full sockets would wait for
// each other for ever. So only where the socket has room for it, else before a later record; there is
// slack enough.
void TlsStream::renew_key() {
  if (key_bytes_ < context_->bytes_per_key()) return;
  pollfd entry{socket_.descriptor, POLLOUT, 0};
  if (::poll(&entry, 1, 0) != 1 || (entry.revents & POLLOUT) == 0) return;
  if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return;
  key_bytes_ = 0;
  (void)SSL_do_handshake(ssl_);  // a failure is the next record's too
}

ssize_t TlsStream::write_record(const char* data, std::size_t bytes) {
  std::size_t put = 0;
  ERR_clear_error();
  errno = 0;
  if (SSL_write_ex(ssl_, data, bytes, &put) == 1) {
    key_bytes_ += put;
    return static_cast<ssize_t>(put);
  }
  const int error = SSL_get_error(ssl_, 0);
  if (error == SSL_ERROR_WANT_WRITE || error == SSL_ERROR_WANT_READ)
    errno = EAGAIN;
  else if (error == SSL_ERROR_SSL || errno == 0)
    errno = EPROTO;
  return -1;
}

ssize_t TlsStream::write(const iovec* parts, std::size_t count) {
  const std::lock_guard lock(mutex_);
  std::size_t total = 0;
  std::size_t part = 0;
  std::size_t of_part = 0;  // taken of parts[part]
  const auto take = [&](std::size_t bytes) {
    total += bytes;
    of_part += bytes;
    while (part < count && of_part >= parts[part].iov_len) of_part -= parts[part++].iov_len;
  };
  take(0);
  if (!unsent_.empty()) {
    if (write_record(unsent_.data(), unsent_.size()) < 0) return -1;
    unsent_.clear();
    take(1);
  }
  while (part < count) {
    char gathered[kRecordBytes];
    const char* data = static_cast<const char*>(parts[part].iov_base) + of_part;
    std::size_t bytes = std::min(kRecordBytes, parts[part].iov_len - of_part);
    if (bytes < kRecordBytes && part + 1 < count) {
      std::memcpy(gathered, data, bytes);
      for (std::size_t next = part + 1; next < count && bytes < kRecordBytes; ++next) {
        const std::size_t more = std::min(kRecordBytes - bytes, parts[next].iov_len);
        std::memcpy(gathered + bytes, parts[next].iov_base, more);
        bytes += more;
      }
      data = gathered;
    }
    renew_key();
    if (write_record(data, bytes) >= 0) {
      take(bytes);
      continue;
    }
    if (errno != EAGAIN) return total > 0 ? static_cast<ssize_t>(total) : -1;
    // It is encrypted, and must go out as it is, whatever the caller would rather send by then.
    unsent_.assign(data, bytes);
    take(bytes - 1);
    if (total == 0) errno = EAGAIN;
    return total > 0 ? static_cast<ssize_t>(total) : -1;
  }
  return static_cast<ssize_t>(total);
}

ssize_t TlsStream::write(const void* data, std::size_t bytes) {
  const iovec part{const_cast<void*>(data), bytes};
  return write(&part, 1);
}

}  // namespace tutti
