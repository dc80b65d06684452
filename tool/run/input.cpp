#include "tool/run/input.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace tutti::tool {

Result<Input> Input::open(Source source) {
  Input input;
  input.source_ = source;
  input.nothing_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input.nothing_) return errno_status("cannot open /dev/null");
  if (source == Source::none) return input;
  if (source == Source::own && ::isatty(STDIN_FILENO) == 0) return input;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_status("cannot make a pipe");
  input.pipe_.reset(ends[0]);
  input.relay_.reset(ends[1]);
  if (Status status = set_nonblocking(ends[1]); !status.ok()) return status;
  return input;
}

void Input::pump() {
  if (waiting_.empty() && source_ == Source::own) {
    std::array<char, 4096> buffer;
    // bounded: poll said that there is something to read.
    const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) return relay_.reset();  // the end, or a background job that may not read
    waiting_.assign(buffer.data(), static_cast<std::size_t>(got));
  }
  // bounded: the pipe does not block.
  const ssize_t written = ::write(relay_.get(), waiting_.data(), waiting_.size());
  if (written > 0) waiting_.erase(0, static_cast<std::size_t>(written));
  if (written < 0 && errno != EAGAIN && errno != EINTR) {
    waiting_.clear();
    relay_.reset();
  }
}

void Input::feed(std::string piece) {
  if (piece.empty()) return relay_.reset();
  if (relay_) waiting_ = std::move(piece);  // else rank 0 does not want any more
}

}  // namespace tutti::tool
