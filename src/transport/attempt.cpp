#include "transport/attempt.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "transport/shm/descriptors.hpp"

namespace tutti::transport {
namespace {

// What a side offers: its window, as an address within one process, as descriptors between two.
struct Offer {
  std::uint32_t kind = 0;  // LinkKind; tcp: nothing
  std::uint32_t lanes = 0;
  std::int64_t pid = 0;
  std::uint64_t window = 0;
  std::uint64_t bytes = 0;
};

constexpr char kYes = 'y';
constexpr char kNo = 'n';
constexpr char kWelcome = 'w';

Identity identity_of(const Party& party, bool local) {
  return {local ? kRoleLocal : kRoleData, party.rank, party.epoch};
}

}  // namespace

LinkKind Party::local_kind(int peer) const {
  const Address& mine = self();
  const Address& theirs = of(peer);
  if (window == nullptr || mine.host_id != theirs.host_id) return LinkKind::tcp;
  if (mine.local.empty() || theirs.local.empty()) return LinkKind::tcp;
  if (mine.pid == theirs.pid && mine.allowed.inproc && theirs.allowed.inproc)
    return LinkKind::inproc;
  return mine.allowed.shm && theirs.allowed.shm ? LinkKind::shm : LinkKind::tcp;
}

Attempt::Attempt(const Party& party, int peer, bool local, Descriptor socket, Nanoseconds deadline,
                 int stream)
    : party_(party),
      outgoing_(peer >= 0),
      local_(local),
      peer_(peer),
      stream_(stream),
      socket_(std::move(socket)),
      deadline_(deadline),
      handshake_(outgoing_ ? Handshake::client(party.secret, identity_of(party, local))
                           : Handshake::server(party.secret, identity_of(party, local))) {}

Attempt::~Attempt() {
  // The peer may be about to follow the address of our window: then the window has to stay for
  // good.
  const bool exposed = state_ != State::linked && kind_ == LinkKind::inproc &&
                       stage_ != Stage::handshake && party_.window != nullptr;
  if (exposed) new std::shared_ptr<Window>(party_.window);
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
  began_ = true;
  bool going = state_ == State::running;
  while (going && state_ == State::running) {
    switch (stage_) {
      case Stage::handshake: going = shake_hands(); break;
      case Stage::offer: going = take_offer(); break;
      case Stage::verdict: going = take_verdict(); break;
      case Stage::stream: going = take_stream(); break;
      case Stage::welcome: going = take_welcome(); break;
    }
  }
  return state_;
}

// All that is sent before a link exists fits into an empty socket buffer.
bool Attempt::send(const void* data, std::size_t bytes) {
  if (bytes == 0) return true;
  const ssize_t sent = ::send(socket_.get(), data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(bytes)) return true;
  return stop(errno_status("cannot write to a new connection"));
}

// The bytes that came; 0: none yet, or the attempt has failed.
ssize_t Attempt::receive(void* data, std::size_t bytes) {
  const ssize_t got = ::recv(socket_.get(), data, bytes, MSG_DONTWAIT);
  if (got > 0) return got;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
  stop(got < 0 ? errno_status("a new connection broke")
               : Status(Code::io, "the other side hung up before there was a link"));
  return 0;
}

bool Attempt::shake_hands() {
  const std::string first = handshake_.take_output();
  if (!send(first.data(), first.size())) return false;
  char bytes[256];
  while (!handshake_.done()) {
    const ssize_t got = receive(bytes, std::min(sizeof bytes, handshake_.wants()));
    if (got <= 0) return false;
    const Status status = handshake_.feed({bytes, static_cast<std::size_t>(got)});
    // Sent even after a failure: it tells the other side what is wrong.
    const std::string output = handshake_.take_output();
    if (!send(output.data(), output.size())) return false;
    if (!status.ok()) return stop(status);
  }
  const int claimed = handshake_.peer().rank;
  if (outgoing_ ? claimed != peer_ : claimed <= party_.rank || claimed >= party_.size())
    return stop(Status(Code::mismatch, fmt::format("rank {} answered where rank {} was expected",
                                                   claimed, outgoing_ ? peer_ : party_.rank + 1)));
  peer_ = claimed;
  if (local_) return begin_offer();
  stage_ = outgoing_ ? Stage::welcome : Stage::stream;
  const auto number = static_cast<unsigned char>(stream_);
  return !outgoing_ || send(&number, 1);
}

bool Attempt::begin_offer() {
  auto other = peer_credentials(socket_.get());
  if (!other.ok()) return stop(other.status());
  if (other->uid != ::geteuid())
    return stop(Status(Code::corrupt, fmt::format("rank {} belongs to user {}, not to user {}",
                                                  peer_, other->uid, ::geteuid())));
  process_ = other->pid;
  kind_ = party_.local_kind(peer_);
  // The kernel, too, must say that it is the same process before an address is followed.
  if (kind_ == LinkKind::inproc && other->pid != ::getpid()) kind_ = LinkKind::tcp;

  Offer offer;
  offer.kind = static_cast<std::uint32_t>(kind_);
  offer.pid = ::getpid();
  int descriptors[2] = {-1, -1};
  if (kind_ != LinkKind::tcp) {
    const Window& window = *party_.window;
    offer.lanes = window.shape().lanes;
    offer.bytes = window.bytes();
    offer.window = reinterpret_cast<std::uintptr_t>(&window);
    descriptors[0] = window.memory();
    descriptors[1] = window.bell();
  }
  const std::size_t count = kind_ == LinkKind::shm ? 2 : 0;
  if (!send_descriptors(socket_.get(), &offer, sizeof offer, {descriptors, count}))
    return stop(errno_status("cannot offer memory"));
  stage_ = Stage::offer;
  return true;
}

bool Attempt::take_offer() {
  Offer offer;
  Descriptor descriptors[2];
  const ssize_t got = receive_descriptors(socket_.get(), &offer, sizeof offer, descriptors);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (got != sizeof offer)
    return stop(Status(Code::io, fmt::format("rank {} hung up before it offered memory", peer_)));

  const bool agreed = offer.kind == static_cast<std::uint32_t>(kind_) && kind_ != LinkKind::tcp &&
                      offer.lanes == party_.window->shape().lanes;
  if (agreed && kind_ == LinkKind::inproc && offer.pid == ::getpid()) {
    theirs_ =
        reinterpret_cast<Window*>(static_cast<std::uintptr_t>(offer.window))->shared_from_this();
  } else if (agreed && kind_ == LinkKind::shm && descriptors[0] && descriptors[1]) {
    auto window =
        Window::attach(std::move(descriptors[0]), std::move(descriptors[1]), offer.bytes, peer_);
    if (window.ok())
      theirs_ = std::move(*window);
    else
      failure_ = window.status();
  }
  accepted_ = theirs_ != nullptr;
  stage_ = Stage::verdict;
  return send(accepted_ ? &kYes : &kNo, 1);
}

bool Attempt::take_verdict() {
  char verdict = 0;
  if (receive(&verdict, 1) != 1) return false;
  if (accepted_ && verdict == kYes) {
    state_ = State::linked;
    return false;
  }
  kind_ = LinkKind::tcp;  // the peer has answered: it follows no address any more
  return stop(failure_.ok() ? Status(Code::unsupported, "the two cannot map each other's memory")
                            : failure_);
}

bool Attempt::take_stream() {
  unsigned char number = 0;
  if (receive(&number, 1) != 1) return false;
  if (number >= party_.streams(peer_))
    return stop(Status(Code::mismatch, fmt::format("rank {} opened stream {} of {}", peer_, number,
                                                   party_.streams(peer_))));
  stream_ = number;
  if (send(&kWelcome, 1)) state_ = State::linked;
  return false;
}

bool Attempt::take_welcome() {
  char word = 0;
  if (receive(&word, 1) != 1) return false;
  if (word != kWelcome) return stop(Status(Code::corrupt, "the welcome of the peer is none"));
  state_ = State::linked;
  return false;
}

}  // namespace tutti::transport
