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
  static const SteadyClock kClock;
  return kClock;
}

}  // namespace tutti
