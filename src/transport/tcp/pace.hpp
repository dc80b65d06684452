// transport/tcp/pace.hpp - how fast a connection takes bytes while there is always more to send, and
// what follows for how much should be on its way at once.
//
// What lies in the kernel's buffers and on the link cannot be overtaken any more: it is how long the
// next small message waits. So much is needed to keep the link busy, and no more.
//
// Thread-safety  none of its own; TcpLink's send lock covers it.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/clock.hpp"

namespace tutti::transport {

class SendPace {
 public:
  // `bytes` were written, and more was left (or not). True when there is a new figure: after every
  // 20 ms without a pause.
  bool note(std::size_t bytes, bool more, Nanoseconds now) {
    if (!running_) {
      running_ = more;  // what was written now filled the buffer; the count begins
      begin_ = now;
      bytes_ = 0;
      return false;
    }
    bytes_ += bytes;
    running_ = more;
    if (!more || now - begin_ < kWindow) return false;
    bytes_per_s_ = static_cast<double>(bytes_) / in_seconds(now - begin_);
    begin_ = now;
    bytes_ = 0;
    return true;
  }
  // Nothing is counted: what is written now without leaving more behind says nothing of its speed.
  bool is_at_rest() const { return !running_; }
  // How much the connection takes in `time`, in whole pages; 0: not known yet.
  std::size_t bytes_in(Nanoseconds time) const {
    const double bytes = bytes_per_s_ * in_seconds(time);
    return static_cast<std::size_t>(bytes) / 4096 * 4096;
  }

 private:
  static constexpr Nanoseconds kWindow = std::chrono::milliseconds(20);
  bool running_ = false;
  Nanoseconds begin_{0};
  std::size_t bytes_ = 0;
  double bytes_per_s_ = 0;
};

}  // namespace tutti::transport
