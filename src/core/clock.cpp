#include "core/clock.hpp"

namespace tutti {
namespace {

class SteadyClock final : public Clock {
 public:
  Nanoseconds now() const override {
    return std::chrono::duration_cast<Nanoseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
  }
};

}  // namespace

const Clock& steady_clock() {
  // Never destroyed: a thread that outlives main for a moment may still ask it.
  static const SteadyClock& clock = *new SteadyClock;
  return clock;
}

}  // namespace tutti
