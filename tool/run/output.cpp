#include "tool/run/output.hpp"

#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace tutti::tool {
namespace {

constexpr int kDrainTurns = 32;

}  // namespace

void OutputSink::put(std::string_view bytes) {
  if (error_ == 0) waiting_.append(bytes);
}

bool OutputSink::closed() const { return error_ == EPIPE; }

void OutputSink::flush() {
  std::size_t written = 0;
  while (written < waiting_.size()) {
    // A descriptor shared with others must not be made non-blocking. A pipe or terminal that polls
    // as writable takes PIPE_BUF bytes without waiting.
    pollfd ready{descriptor_, POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) break;
    const std::size_t piece = std::min<std::size_t>(waiting_.size() - written, PIPE_BUF);
    // bounded: poll said that it takes some; see this file's head.
    const ssize_t got = ::write(descriptor_, waiting_.data() + written, piece);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) break;
    if (got < 0) {
      error_ = errno;
      waiting_.clear();
      return;
    }
    written += static_cast<std::size_t>(got);
  }
  waiting_.erase(0, written);
}

void LineStream::pump() {
  std::array<char, 65536> buffer;
  // bounded: the pipe does not block.
  const ssize_t got = ::read(pipe_.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) return finish();
  feed({buffer.data(), static_cast<std::size_t>(got)});
  // As without a launcher: who writes to a reader that went away gets SIGPIPE.
  if (sink_->closed() && !log_) pipe_.reset();
}

void LineStream::drain() {
  const auto has_input = [this] {
    pollfd ready{pipe_.get(), POLLIN, 0};
    return ::poll(&ready, 1, 0) > 0;
  };
  // As much as a pipe holds, and a little: somebody else may be writing to it for ever.
  for (int turn = 0; turn < kDrainTurns && open() && has_input(); ++turn) pump();
  if (open()) finish();
}

void LineStream::finish() {
  if (!partial_.empty()) emit(partial_ + "\n");
  partial_.clear();
  pipe_.reset();
}

void LineStream::feed(std::string_view bytes) {
  if (log_) {
    const Nanoseconds deadline = deadline_after(steady_clock().now(), std::chrono::seconds(10));
    log_failure_ = write_fully(log_.get(), bytes.data(), bytes.size(), deadline);
    if (!log_failure_.ok()) log_.reset();
  }
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    if (end == std::string_view::npos) {
      partial_.append(bytes);
      if (partial_.size() > kLongestLine) emit(std::exchange(partial_, {}) + "\n");
      return;
    }
    partial_.append(bytes.substr(0, end + 1));
    bytes.remove_prefix(end + 1);
    emit(std::exchange(partial_, {}));
  }
}

void LineStream::emit(std::string_view line) {
  if (filter_ && filter_(line)) return;
  if (last_lines_.size() == kRemembered) last_lines_.pop_front();
  last_lines_.emplace_back(line.substr(0, std::min(line.size() - 1, kRememberedBytes)));
  sink_->put(prefix_);
  sink_->put(line);
}

void Sinks::flush() const {
  out->flush();
  err->flush();
}

Status Sinks::failure() const {
  for (const auto& [sink, name] : {std::pair(out.get(), "output"), std::pair(err.get(), "error")})
    if (sink->error() != 0 && !sink->closed())
      return {Code::io, fmt::format("cannot write standard {}: {}; what ranks print is lost", name,
                                    std::strerror(sink->error()))};
  return {};
}

Sinks Sinks::of_this_process() {
  Sinks sinks{std::make_shared<OutputSink>(STDOUT_FILENO),
              std::make_shared<OutputSink>(STDERR_FILENO)};
  struct stat out {};
  struct stat err {};
  if (::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &err) == 0 &&
      out.st_dev == err.st_dev && out.st_ino == err.st_ino)
    sinks.err = sinks.out;
  return sinks;
}

}  // namespace tutti::tool
