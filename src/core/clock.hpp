// core/clock.hpp - time, handed in: engine, watchdog and handshakes never ask the system.
#pragma once

#include <chrono>
#include <string>

namespace tutti {

using Nanoseconds = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic, from an arbitrary start.
  virtual Nanoseconds now() const = 0;
};

// The system's steady clock. Stateless; one for all.
const Clock& steady_clock();

// The same for all processes that share a steady clock: the kernel's boot and the time namespace.
// Empty: the system does not say.
std::string clock_identity();

// Stands still until it is told otherwise: for tests and simulations.
class VirtualClock final : public Clock {
 public:
  Nanoseconds now() const override { return now_; }
  void advance(Nanoseconds by) { now_ += by; }
  void advance_to(Nanoseconds when) { now_ = when > now_ ? when : now_; }

 private:
  Nanoseconds now_{0};
};

inline double in_seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

// now + timeout without overflow; max() stays max().
inline Nanoseconds deadline_after(Nanoseconds now, Nanoseconds timeout) {
  return timeout > Nanoseconds::max() - now ? Nanoseconds::max() : now + timeout;
}

}  // namespace tutti
