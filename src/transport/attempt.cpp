#include "transport/attempt.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::transport {
namespace {

// What the connecting side wants, behind the handshake.
struct Intent {
  char transport[15] = {};
  std::uint8_t number = 0;
};
static_assert(sizeof(Intent) == 16);

// What stays on this host stays in the clear.
ByteStream stream_of(const Party& party, Door door, Descriptor socket, TlsSide side) {
  return ByteStream(std::move(socket), door == Door::network ? party.tls : nullptr, side);
}

Identity identity_of(const Party& party, Door door) {
  return {door == Door::local ? kRoleLocal : kRoleData, party.rank, party.epoch};
}

}  // namespace

Attempt::Attempt(const Party& party, Door door, Descriptor socket, const SocketAddress& address,
                 Nanoseconds deadline, const Purpose& purpose)
    : party_(party),
      door_(door),
      outgoing_(true),
      purpose_(purpose),
      socket_(stream_of(party, door, std::move(socket), TlsSide::client)),
      whence_(address.to_string()),
      deadline_(deadline),
      handshake_(Handshake::client(party.secret, identity_of(party, door))),
      stage_(HandshakeStage::connecting) {}

Attempt::Attempt(const Party& party, Door door, Descriptor socket, std::string whence,
                 Nanoseconds deadline, Gate* gate)
    : party_(party),
      door_(door),
      outgoing_(false),
      gate_(gate),
      purpose_{-1, nullptr, 0},
      socket_(stream_of(party, door, std::move(socket), TlsSide::server)),
      whence_(std::move(whence)),
      deadline_(deadline),
      handshake_(Handshake::server(party.secret, identity_of(party, door))),
      stage_(HandshakeStage::encrypting) {}

short Attempt::events() const {
  if (stage_ == HandshakeStage::encrypting) return socket_.events();
  return stage_ == HandshakeStage::connecting ? POLLOUT : POLLIN;
}

bool Attempt::stop(Status why) {
  state_ = State::failed;
  failure_ = std::move(why);
  return false;
}

void Attempt::fail(Status why) {
  if (state_ == State::running) stop(std::move(why));
}

Attempt::State Attempt::step() {
  bool going = state_ == State::running;
  while (going && state_ == State::running) {
    switch (stage_) {
      case HandshakeStage::connecting: going = reach(); break;
      case HandshakeStage::encrypting: going = encrypt(); break;
      case HandshakeStage::handshake: going = shake_hands(); break;
      case HandshakeStage::intent: going = take_intent(); break;
      case HandshakeStage::greeting: going = greet(); break;
    }
  }
  return state_;
}

// All that is sent before a link exists fits into an empty socket buffer.
bool Attempt::send(const void* data, std::size_t bytes) {
  if (bytes == 0) return true;
  const ssize_t sent = socket_.send(data, bytes);
  if (sent == static_cast<ssize_t>(bytes)) return true;
  return stop(errno_status("cannot write to a new connection"));
}

// The bytes that came; 0: none yet, or the attempt has failed.
ssize_t Attempt::receive(void* data, std::size_t bytes) {
  const ssize_t got = socket_.receive(data, bytes);
  if (got > 0) return got;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
  stop(got < 0 ? errno_status("a new connection broke")
               : Status(Code::io, "the other side hung up before there was a link"));
  return 0;
}

bool Attempt::reach() {
  pollfd entry{socket_.get(), POLLOUT, 0};
  if (::poll(&entry, 1, 0) <= 0) return false;
  if (const int error = connect_error(socket_.get()); error != 0) {
    refused_ = error == ECONNREFUSED;
    return stop(errno_status("cannot connect to " + whence_, error));
  }
  stage_ = HandshakeStage::encrypting;
  return true;
}

bool Attempt::encrypt() {
  const auto done = socket_.step();
  spoke_ |= socket_.has_begun();
  if (!done.ok()) return stop(done.status());
  if (!*done) return false;
  handshake_.bind(socket_.binding());
  stage_ = HandshakeStage::handshake;
  return true;
}

bool Attempt::shake_hands() {
  const std::string first = handshake_.take_output();
  if (!send(first.data(), first.size())) return false;
  char bytes[1024];
  while (!handshake_.done()) {
    const ssize_t got = receive(bytes, std::min(sizeof bytes, handshake_.wants()));
    if (got <= 0) return false;
    const Status status = handshake_.feed({bytes, static_cast<std::size_t>(got)});
    // Sent even after a failure: it tells the other side what is wrong.
    const std::string output = handshake_.take_output();
    if (!send(output.data(), output.size())) return false;
    if (!status.ok()) {
      // Closed with bytes unread, the connection would take our words back (a reset).
      (void)socket_.receive(bytes, sizeof bytes);
      return stop(status);
    }
    spoke_ |= !output.empty();
  }
  const int claimed = handshake_.peer().rank;
  // Who makes a link at its first use may be either of the two.
  const bool may_come =
      party_.lazy ? claimed >= 0 && claimed != party_.rank : claimed > party_.rank;
  if (outgoing_ ? claimed != peer() : !may_come || claimed >= party_.size())
    return stop(Status(Code::mismatch, fmt::format("rank {} answered where rank {} was expected",
                                                   claimed, outgoing_ ? peer() : party_.rank + 1)));
  purpose_.peer = claimed;
  if (door_ == Door::local && !know_process()) return false;
  stage_ = HandshakeStage::intent;
  return !outgoing_ || send_intent();
}

// On one host the kernel says who it is, and it must be the same user.
bool Attempt::know_process() {
  auto other = peer_credentials(socket_.get());
  if (!other.ok()) return stop(other.status());
  if (other->uid != ::geteuid())
    return stop(Status(Code::corrupt, fmt::format("rank {} belongs to user {}, not to user {}",
                                                  peer(), other->uid, ::geteuid())));
  process_ = other->pid;
  return true;
}

bool Attempt::send_intent() {
  Intent intent;
  const std::string_view name = transport()->name();
  std::memcpy(intent.transport, name.data(), std::min(name.size(), sizeof intent.transport));
  intent.number = static_cast<std::uint8_t>(number());
  if (!send(&intent, sizeof intent)) return false;
  greeting_ = transport()->greet(party_, {peer(), true, process_});
  stage_ = HandshakeStage::greeting;
  return true;
}

bool Attempt::take_intent() {
  Intent intent;
  char bytes[sizeof intent];
  const ssize_t got = receive(bytes, sizeof bytes - inbox_.size());
  if (got <= 0) return false;
  inbox_.append(bytes, static_cast<std::size_t>(got));
  if (inbox_.size() < sizeof intent) return false;
  std::memcpy(&intent, inbox_.data(), sizeof intent);

  const std::string_view name(intent.transport,
                              ::strnlen(intent.transport, sizeof intent.transport));
  const auto routes = party_.routes(peer());
  const auto route = std::find_if(routes.begin(), routes.end(), [&](const Transport* each) {
    return each->name() == name && each->door() == door_;
  });
  if (route == routes.end())
    return stop(
        Status(Code::mismatch,
               fmt::format("rank {} wants a link by '{}' here, which there is not", peer(), name)));
  const int connections = (*route)->connections(party_.self(), party_.of(peer()));
  if (intent.number >= connections)
    return stop(Status(Code::mismatch, fmt::format("rank {} opened connection {} of {} by {}",
                                                   peer(), intent.number, connections, name)));
  purpose_.transport = *route;
  purpose_.number = intent.number;
  if (gate_ != nullptr && !gate_->admits(peer()))
    return stop(Status(Code::io, "this rank connects to it at the same time"));
  greeting_ = (*route)->greet(party_, {peer(), false, process_});
  stage_ = HandshakeStage::greeting;
  return true;
}

bool Attempt::greet() {
  const Result<bool> agreed = greeting_->step(socket_);
  if (!agreed.ok()) return stop(agreed.status());
  if (*agreed) state_ = State::linked;
  return false;
}

}  // namespace tutti::transport
