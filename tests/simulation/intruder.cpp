#include "simulation/intruder.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace tutti::simulation {
namespace {

constexpr std::string_view kOtherSecret = "not this one, of thirty-two bytes";

// As transport/attempt.cpp has it: the transport's name, and which of its connections.
std::string wants_a_tcp_link() {
  std::string intent = "tcp";
  intent.resize(16);
  return intent;
}

}  // namespace

Intruder::Intruder(Kind kind, const Aim& aim, std::mt19937_64& random)
    : kind_(kind), aim_(aim), random_(random) {
  auto address = SocketAddress::parse(aim.address);
  auto dialled = address.ok() ? begin_connect(*address) : Result<Dialled>(address.status());
  out_ = !dialled.ok() || dialled->error != 0;
  if (out_) return;
  socket_ = std::move(dialled->socket);
  if (kind == Kind::silent) return;
  if (kind == Kind::replay) {
    outbox_ = aim.overheard;
    return;
  }
  const Identity self{aim.local ? kRoleLocal : kRoleData, aim.rank,
                      kind == Kind::old_epoch ? aim.epoch - 1 : aim.epoch};
  handshake_ = Handshake::client(kind == Kind::wrong_secret ? kOtherSecret : aim_.secret, self);
  outbox_ = handshake_->take_output();
  if (kind == Kind::breaks_off) leave_after_ = 1 + random() % outbox_.size();
}

void Intruder::step() {
  if (out_) return;
  while (send_some()) {
  }
  if (leave_after_ > 0 && sent_ >= leave_after_) {
    socket_.reset();
    out_ = true;
    return;
  }
  hear();
}

bool Intruder::send_some() {
  if (outbox_.empty() || random_() % 4 == 0) return false;
  std::size_t count = 1 + random_() % outbox_.size();
  if (leave_after_ > 0) count = std::min(count, leave_after_ - sent_);
  const ssize_t went =
      count == 0 ? -1 : ::send(socket_.get(), outbox_.data(), count, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (went <= 0) return false;
  sent_ += static_cast<std::size_t>(went);
  outbox_.erase(0, static_cast<std::size_t>(went));
  if (kind_ == Kind::replay || kind_ == Kind::old_epoch) claimed_ |= outbox_.empty();
  return true;
}

void Intruder::hear() {
  char bytes[256];
  const bool shaking = handshake_ && !handshake_->done();
  const ssize_t got =
      ::recv(socket_.get(), bytes,
             shaking ? std::min(sizeof bytes, handshake_->wants()) : sizeof bytes, MSG_DONTWAIT);
  if (got > 0) return go_on({bytes, static_cast<std::size_t>(got)});
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN)) return;
  out_ = true;
}

void Intruder::go_on(std::string_view heard) {
  if (!handshake_ || handshake_->done()) return;
  (void)handshake_->feed(heard);  // who is refused hears it here, and by the end
  outbox_ += handshake_->take_output();
  if (kind_ == Kind::wrong_secret) claimed_ = true;
  if (kind_ != Kind::duplicate || !handshake_->done()) return;
  outbox_ += wants_a_tcp_link();
  claimed_ = true;
}

}  // namespace tutti::simulation
