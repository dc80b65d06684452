// engine/device_times.hpp - when a group's collectives ran on the device, for its trace.
//
// Events around each of them, in its stream, say how long it took and how they lie to each other. Where they lie on
// the host's clock follows from what must be so: none begins before it is launched, none ends after the host has
// seen its end. Where a stream was idle the first is true to some microseconds.
//
// Thread-safety  none: the baton's holder.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <string>

#include "cuda/device.hpp"
#include "engine/device_board.hpp"
#include "trace/tracer.hpp"

namespace tutti::engine {

// What to add to a device's time to get the host's, between bounds that every event may tighten. Nanoseconds.
class DeviceClock {
 public:
  void begun(std::int64_t device, std::int64_t launched) {
    least_ = std::max(least_, launched - device);
  }
  void ended(std::int64_t device, std::int64_t seen) { most_ = std::min(most_, seen - device); }
  std::int64_t offset() const { return std::min(least_, most_); }
  // Device times count from `by` later on. Clocks drift apart: what was known holds roughly.
  void restart(std::int64_t by);

 private:
  static constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max() / 4;
  std::int64_t least_ = -kUnknown;
  std::int64_t most_ = kUnknown;
};

class DeviceTimes {
 public:
  // unsupported, out_of_memory: the trace has no device lanes then.
  static Result<std::shared_ptr<DeviceTimes>> create(std::shared_ptr<cuda::Device> device);

  // Around what collective `ticket` has in its stream. What fails is not in the trace.
  void begin(std::uint64_t ticket, cuda::StreamHandle stream);
  void end(std::uint64_t ticket, cuda::StreamHandle stream);
  // The host has seen its end: `entry` tells of it.
  void note(std::uint64_t ticket, const trace::TraceEntry& entry, std::string_view name);
  // Writes those whose times are known by now.
  void tell(trace::Tracer& tracer);

 private:
  struct Slot {
    cuda::Event begin;
    cuda::Event end;
    std::uint64_t ticket = 0;  // whose both events are
    std::int64_t launched = 0;
  };
  struct Noted {
    std::uint64_t ticket = 0;
    std::int64_t seen = 0;
    trace::TraceEntry entry;
    std::string name;
  };
  explicit DeviceTimes(std::shared_ptr<cuda::Device> device) : device_(std::move(device)) {}
  Slot& slot(std::uint64_t ticket) { return slots_[ticket % kDeviceRing]; }
  bool place(Slot& slot, Noted& noted);
  bool rebase(Slot& slot, std::int64_t at);

  std::shared_ptr<cuda::Device> device_;
  std::array<Slot, kDeviceRing> slots_;
  cuda::Event base_;  // from which device times count
  DeviceClock clock_;
  std::deque<Noted> noted_;
};

}  // namespace tutti::engine
