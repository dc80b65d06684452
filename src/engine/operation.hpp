// engine/operation.hpp - a collective that was called, from its start to its end.
//
// A blocking call and an asynchronous one are the same thing. The first has no WorkState as long as
// its caller steps it; it gets one when it turns out to take longer.
#pragma once

#include <cstdint>
#include <memory>

#include "core/clock.hpp"
#include "cuda/traffic.hpp"
#include "engine/launch.hpp"
#include "engine/work_state.hpp"

namespace tutti::engine {

struct Operation {
  std::unique_ptr<const Launch> owned;  // empty: the caller waits, and keeps it
  const Launch* launch = nullptr;
  std::uint64_t sequence = 0;  // in its group (numbers.hpp)
  std::uint64_t ticket = 0;    // on a device: among those (device_board.hpp); 0: in host memory
  Nanoseconds queued{0};
  Nanoseconds begun{0};  // only when there is a trace
  Nanoseconds deadline = Nanoseconds::max();
  std::shared_ptr<WorkState> work;
  cuda::DeviceTraffic::Flight flight;  // on a device
  bool told_to_wait = false;           // for the works that it comes after
  bool counted = false;                // among those that the progress thread takes care of
};

}  // namespace tutti::engine
