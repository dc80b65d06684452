#include "simulation/relay_door.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "core/auth.hpp"
#include "core/check.hpp"

namespace tutti::simulation {
namespace {

constexpr std::size_t kIntentBytes = 16;

bool is_empty_handed(ssize_t got) { return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK); }

}  // namespace

std::size_t bytes_to_get_in() {
  static const std::size_t all = [] {
    const std::string secret(32, 's');
    Handshake client = Handshake::client(secret, {kRoleData, 1, 1});
    Handshake server = Handshake::server(secret, {kRoleData, 0, 1});
    const std::string hello = client.take_output();
    TUTTI_CHECK(server.feed(hello).ok());
    TUTTI_CHECK(client.feed(server.take_output()).ok());
    return hello.size() + client.take_output().size() + kIntentBytes;
  }();
  return all;
}

RelayDoor::RelayDoor(const std::string& target, unsigned breaks_in_ten, std::mt19937_64& random)
    : target_(*SocketAddress::parse(target)),
      breaks_in_ten_(breaks_in_ten),
      random_(random),
      listener_(*listen_on(*SocketAddress::parse("127.0.0.1:0"))),
      address_(local_address(listener_.get())->to_string()) {}

bool RelayDoor::move() {
  bool moved = let_in();
  for (auto at = passages_.begin(); at != passages_.end();) {
    const bool inwards = pass_inwards(*at);
    const bool outwards = at->outer && pass_outwards(*at);
    moved |= inwards || outwards;
    at = at->outer ? std::next(at) : passages_.erase(at);
  }
  return moved;
}

bool RelayDoor::let_in() {
  if (!listener_) return false;
  auto socket = accept_from(listener_.get());
  if (!socket.ok() || !*socket) return false;
  auto dialled = begin_connect(target_);
  if (!dialled.ok() || dialled->error != 0) return true;  // nobody is in: the visitor sees it
  Passage& passage = passages_.emplace_back();
  passage.outer = std::move(*socket);
  passage.inner = std::move(dialled->socket);
  if (random_() % 10 < breaks_in_ten_) passage.break_at = 1 + random_() % (bytes_to_get_in() - 1);
  return true;
}

bool RelayDoor::pass_inwards(Passage& passage) {
  char bytes[4096];
  std::size_t most = 1 + random_() % (random_() % 2 == 0 ? 40 : sizeof bytes);
  if (passage.break_at > 0) most = std::min(most, passage.break_at - passage.said.size());
  const ssize_t got = ::recv(passage.outer.get(), bytes, most, MSG_DONTWAIT);
  if (is_empty_handed(got)) return false;
  const auto count = static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  // All of it goes: so little is under way that there is room.
  if (got <= 0 || ::send(passage.inner.get(), bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL) != got) {
    passage.outer.reset();
    return true;
  }
  if (passage.said.size() < bytes_to_get_in()) passage.said.append(bytes, count);
  if (passage.break_at > 0 && passage.said.size() >= passage.break_at) {
    ++breaks_;
    passage.outer.reset();
  } else if (passage.said.size() >= bytes_to_get_in()) {
    overheard_ = passage.said.substr(0, bytes_to_get_in());
  }
  return true;
}

bool RelayDoor::pass_outwards(Passage& passage) {
  char bytes[4096];
  const std::size_t most = 1 + random_() % (random_() % 2 == 0 ? 40 : sizeof bytes);
  const ssize_t got = ::recv(passage.inner.get(), bytes, most, MSG_DONTWAIT);
  if (is_empty_handed(got) || (got < 0 && errno == ENOTCONN)) return false;
  if (got <= 0 || ::send(passage.outer.get(), bytes, static_cast<std::size_t>(got),
                         MSG_DONTWAIT | MSG_NOSIGNAL) != got)
    passage.outer.reset();
  return true;
}

void RelayDoor::close() {
  listener_.reset();
  passages_.clear();
}

}  // namespace tutti::simulation
