// engine/wait_pattern.hpp - whether those who start works on a group wait for them at once.
//
// Waking the progress thread costs tens of microseconds on a virtual machine, on a core that a rank
// may be using. It is wasted on a caller that waits in the next moment and so drives the work itself,
// as every blocking call of torch.distributed does. A group expects that after a row of such waits,
// and no longer after the first work that is left alone.
//
// Thread-safety  any thread; two that start or wait at the same time may lose a count.
#pragma once

#include <algorithm>
#include <atomic>

#include "core/clock.hpp"

namespace tutti::engine {

class WaitPattern {
 public:
  void on_start(Nanoseconds now) { started_.store(now.count(), std::memory_order_relaxed); }
  void on_wait(Nanoseconds now) {
    const std::int64_t started = started_.exchange(kNever, std::memory_order_relaxed);
    if (started == kNever) return;
    const bool soon = now.count() - started < kSoon.count();
    const int row = row_.load(std::memory_order_relaxed);
    row_.store(soon ? std::min(row + 1, kRow) : 0, std::memory_order_relaxed);
  }
  void on_left_alone() { row_.store(0, std::memory_order_relaxed); }

  bool waits_at_once() const { return row_.load(std::memory_order_relaxed) == kRow; }

 private:
  static constexpr std::int64_t kNever = -1;
  // Between the return of a start and the wait, Python takes about 2 µs (2.8 GHz, 2026-11-15).
  static constexpr Nanoseconds kSoon = std::chrono::microseconds(50);
  static constexpr int kRow = 8;

  std::atomic<std::int64_t> started_{kNever};
  std::atomic<int> row_{0};
};

}  // namespace tutti::engine
