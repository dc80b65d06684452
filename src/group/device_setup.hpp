// group/device_setup.hpp - how ranks of a group come to run collectives on device memory together.
//
// Done once per group, with its first device buffer, by all ranks at the same point: jobs on CPU memory
// never touch the driver. Ranks tell each other which GPU they use, try whether they reach each other's
// memory, and measure how they meet best; all of them decide alike.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "cuda/device.hpp"
#include "engine/device_side.hpp"
#include "tutti/config.hpp"

namespace tutti::group {

// What a rank says of its GPU.
struct DeviceCard {
  std::uint8_t is_usable = 0;
  std::uint8_t is_beside_all = 0;  // it shares memory with every other rank
  std::uint8_t may_reach = 0;      // TUTTI_CUDA_REACH does not forbid it
  std::uint8_t must_reach = 0;     //   or demands it
  std::uint8_t forced = 0;         // TUTTI_CUDA_MEET: 1 + DeviceMeeting; 0: none
  std::uint8_t memory_operations = 0;
  std::uint8_t streams_are_apart = 0;
  std::int32_t ordinal = 0;
  std::uint64_t push_from = 0;  // TUTTI_CUDA_PUSH
  std::array<std::byte, 16> uuid{};
  char trouble[200] = {};  // why it is not usable

  static DeviceCard of(const Result<std::shared_ptr<cuda::Device>>& device, const Config& config);
};

// Tries one way of meeting, in rounds that do nothing else; blocks, at most some seconds. What a
// round takes; absent: it does not work. All ranks call it at the same time.
std::optional<Nanoseconds> try_meeting(engine::DeviceSide& side, engine::DeviceMeeting way);

}  // namespace tutti::group
