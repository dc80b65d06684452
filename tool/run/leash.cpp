#include "tool/run/leash.hpp"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

namespace tutti::tool {
namespace {

constexpr std::string_view kSignal = "signal ";

}  // namespace

Result<Leash> Leash::take(NodeOrder& order) {
  Leash leash;
  std::size_t end = std::string::npos;
  while (!leash.gone_ && (end = leash.in_.find('\n')) == std::string::npos) leash.pump();
  if (end == std::string::npos) return Status(Code::io, "no order came on standard input");
  auto read = read_order(std::string_view(leash.in_).substr(0, end));
  if (!read.ok()) return read.status();
  order = *std::move(read);
  leash.in_.erase(0, end + 1);
  return leash;
}

void Leash::pump() {
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0)
    gone_ = true;
  else
    in_.append(buffer.data(), static_cast<std::size_t>(got));
}

int Leash::glance() {
  pollfd ready{STDIN_FILENO, POLLIN, 0};
  if (!gone_ && ::poll(&ready, 1, 0) > 0) pump();
  const int signal = take_signal();
  return signal == 0 && gone_ ? SIGTERM : signal;
}

int Leash::take_signal() {
  const std::size_t end = in_.find('\n');
  if (end == std::string::npos) return 0;
  const std::string line = in_.substr(0, end);
  in_.erase(0, end + 1);
  return line.starts_with(kSignal) ? std::atoi(line.c_str() + kSignal.size()) : 0;
}

}  // namespace tutti::tool
