#include "tool/run/leash.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

namespace tutti::tool {
namespace {

constexpr std::string_view kSignal = "signal ";
constexpr std::string_view kInput = "input ";

}  // namespace

std::string signal_words(int signal) { return fmt::format("{}{}\n", kSignal, signal); }

std::string input_words(const std::string& piece) {
  return fmt::format("{}{}\n{}", kInput, piece.size(), piece);
}

Result<Leash> Leash::take(NodeOrder& order) {
  Leash leash;
  std::size_t end = std::string::npos;
  while (!leash.gone_ && (end = leash.in_.find('\n')) == std::string::npos) leash.pump();
  if (end == std::string::npos) return Status(Code::io, "no order came on standard input");
  auto read = read_order(std::string_view(leash.in_).substr(0, end));
  if (!read.ok()) return read.status();
  order = *std::move(read);
  leash.mark_ = order.mark;
  leash.in_.erase(0, end + 1);
  return leash;
}

void Leash::pump() {
  std::array<char, 65536> buffer;
  // bounded: by whoever holds the other end: an order comes at once, what follows when poll says so.
  const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0)
    gone_ = true;
  else
    in_.append(buffer.data(), static_cast<std::size_t>(got));
}

// Whole words go to where they are taken from.
void Leash::sort() {
  for (;;) {
    const std::size_t end = in_.find('\n');
    if (end == std::string::npos) return;
    const std::string line = in_.substr(0, end);
    std::size_t used = end + 1;
    if (line.starts_with(kSignal)) {
      signals_.push_back(std::atoi(line.c_str() + kSignal.size()));
    } else if (line.starts_with(kInput)) {
      const std::size_t bytes = std::strtoul(line.c_str() + kInput.size(), nullptr, 10);
      if (in_.size() < used + bytes) return;
      inputs_.push_back(in_.substr(used, bytes));
      used += bytes;
    }
    in_.erase(0, used);
  }
}

int Leash::take_signal() {
  sort();
  if (signals_.empty()) return 0;
  const int signal = signals_.front();
  signals_.pop_front();
  return signal;
}

std::optional<std::string> Leash::take_input() {
  sort();
  if (inputs_.empty()) return std::nullopt;
  std::string piece = std::move(inputs_.front());
  inputs_.pop_front();
  return piece;
}

int Leash::glance() {
  pollfd ready{STDIN_FILENO, POLLIN, 0};
  if (!gone_ && ::poll(&ready, 1, 0) > 0) pump();
  const int signal = take_signal();
  return signal == 0 && gone_ ? SIGTERM : signal;
}

}  // namespace tutti::tool
