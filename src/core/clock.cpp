#include "core/clock.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include "core/files.hpp"

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

std::string clock_identity() {
  const std::string boot(first_word(read_text("/proc/sys/kernel/random/boot_id")));
  struct stat space {};
  if (boot.empty() || ::stat("/proc/self/ns/time", &space) != 0) return boot;
  return fmt::format("{}/{}", boot, space.st_ino);
}

}  // namespace tutti
