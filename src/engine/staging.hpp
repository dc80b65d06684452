// engine/staging.hpp - copies between a GPU's memory and the host's, for collectives that go through it.
//
// A program that schedule::stage has rewritten touches the caller's buffers by copies alone, in and out of
// scratch. Here these are the device's copies: several are under way at once, each direction in a
// stream of its own, in order, while messages of other pieces move.
//
// Thread-safety  none: the baton's holder.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/device.hpp"
#include "engine/device_side.hpp"

namespace tutti::engine {

class Staging {
 public:
  // Bytes that are copied at once: long enough for the bus, short enough that the next step need not wait.
  static constexpr std::size_t kPieceBytes = 1 << 20;

  explicit Staging(DeviceSide& side) : side_(side) {}

  // Pinned, and kept until a larger one is asked for. Throws std::bad_alloc where there is none.
  std::byte* scratch(std::size_t bytes);

  // A collective begins: copies into the host's memory wait for the caller's stream.
  Status begin(const Launch& launch);
  // Begins a copy, and names it; 0: too many are under way.
  enum class Direction : std::uint8_t { to_host, to_device };
  Result<std::uint64_t> copy(Direction direction, std::byte* to, const std::byte* from,
                             std::size_t bytes);
  Result<bool> is_over(Direction direction, std::uint64_t copy) const;

 private:
  static constexpr std::uint64_t kMost = 16;  // copies under way
  struct Lane {
    cuda::Stream stream;
    std::array<cuda::Event, kMost> events;
    std::uint64_t begun = 0;
  };
  Status open();
  Lane& lane(Direction direction) { return lanes_[static_cast<std::size_t>(direction)]; }
  const Lane& lane(Direction direction) const {
    return lanes_[static_cast<std::size_t>(direction)];
  }

  DeviceSide& side_;
  std::array<Lane, 2> lanes_;
  cuda::Memory scratch_;
  bool is_open_ = false;
};

}  // namespace tutti::engine
