// exchange/slots.hpp - room for blocks on their way: symmetric memory, cut into equal slots, used again by
// the next exchange.
#pragma once

#include <span>
#include <vector>

#include "tutti/exchange/ring.hpp"

namespace tutti::exchange {

// Arrays of so many rows, one after the other in memory.
std::vector<Buffer> arrays_in(std::span<const RingArray> arrays, std::byte* memory,
                              std::size_t rows, Device device);
std::size_t bytes_of(std::span<const RingArray> arrays, std::size_t rows);

class Slots {
 public:
  Slots(std::shared_ptr<Group> group, Device device) : group_(std::move(group)), device_(device) {}
  // Room for so many bytes in all. Collective when it has to grow: all ranks ask for the same.
  Status reserve(std::size_t bytes);
  std::byte* data() const { return static_cast<std::byte*>(memory_.data); }

 private:
  std::shared_ptr<Group> group_;
  Device device_;
  SymmetricMemory memory_;
};

}  // namespace tutti::exchange
