#include "exchange/slots.hpp"

namespace tutti::exchange {

namespace {

constexpr std::size_t kAlignment = 128;  // of every array: two cache lines, as they are fetched

std::size_t padded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::vector<Buffer> arrays_in(std::span<const RingArray> arrays, std::byte* memory,
                              std::size_t rows, Device device) {
  std::vector<Buffer> buffers;
  for (const RingArray& array : arrays) {
    buffers.push_back({memory, rows * array.row, array.dtype, device});
    memory += padded(buffers.back().bytes());
  }
  return buffers;
}

std::size_t bytes_of(std::span<const RingArray> arrays, std::size_t rows) {
  std::size_t bytes = 0;
  for (const RingArray& array : arrays) bytes += padded(rows * array.row * size_of(array.dtype));
  return bytes;
}

Status Slots::reserve(std::size_t bytes) {
  if (bytes <= memory_.bytes) return {};
  memory_ = {};  // before the new one is there: the two need not fit at once
  auto memory = group_->allocate(bytes, device_);
  if (!memory.ok()) return memory.status().annotate("slots of a ring exchange");
  memory_ = *std::move(memory);
  return {};
}

}  // namespace tutti::exchange
