#include "transport/ofi/tether.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/sockets.hpp"
#include "transport/tcp/socket_options.hpp"

namespace tutti::transport::ofi {
namespace {

constexpr char kBeat = 'b';
constexpr char kEnd = 'e';
constexpr char kDone = 'd';
constexpr std::size_t kEndBytes = 1 + sizeof(std::uint64_t);

}  // namespace

Tether::Tether(ByteStream connection, Nanoseconds dead_after) : connection_(std::move(connection)) {
  leave_silence_to_us(connection_.get(), dead_after);
}

bool Tether::read(bool anyway) {
  const bool readable = std::exchange(readable_, false);
  if (!(readable || anyway) || closed_ || !connection_) return false;
  std::array<char, 256> bytes;
  bool some = false;
  while (true) {
    const ssize_t got = connection_.receive(bytes.data(), bytes.size());
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    some = true;
    if (got <= 0) {
      closed_ = true;
      break;
    }
    inbox_.append(bytes.data(), static_cast<std::size_t>(got));
  }
  std::size_t at = 0;
  while (at < inbox_.size()) {
    const bool is_end = inbox_[at] == kEnd;
    if (is_end && inbox_.size() - at < kEndBytes) break;
    if (is_end) std::memcpy(&end_.emplace(), inbox_.data() + at + 1, sizeof(std::uint64_t));
    if (inbox_[at] == kDone) confirmed_ = true;
    at += is_end ? kEndBytes : 1;
  }
  inbox_.erase(0, at);
  return some;
}

// Words are few and short: they fit, or the peer is not there to read them.
void Tether::say(const void* bytes, std::size_t count) {
  if (connection_) (void)connection_.send(bytes, count);
}

void Tether::beat() { say(&kBeat, 1); }

void Tether::confirm() {
  if (!std::exchange(has_confirmed_, true)) say(&kDone, 1);
}

void Tether::say_end(std::uint64_t frames) {
  std::array<char, kEndBytes> word{kEnd};
  std::memcpy(word.data() + 1, &frames, sizeof frames);
  say(word.data(), word.size());
}

// What lies here because nobody polls is a sign of life like any other.
bool Tether::heard() {
  const auto received = bytes_received(connection_.get());
  const bool more = !received || std::exchange(received_, *received) != *received;
  return more || unread_bytes(connection_.get()) > 0;
}

void Tether::shut() const {
  if (connection_) ::shutdown(connection_.get(), SHUT_RDWR);
}

bool Tether::is_cut() const { return is_hung_up(connection_.get()); }

}  // namespace tutti::transport::ofi
