// core/crc32c.hpp - the CRC-32C (Castagnoli) of bytes, by the processor's instructions where it has them.
//
//   const std::uint32_t whole = crc32c(second, 10, crc32c(first, 20));   // as of both together
//
// Thread-safety  any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

// Of `bytes` bytes that follow those of which the checksum is `before`; of none it is 0.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before = 0) noexcept;

// The same, byte by byte: the reference, and for processors without the instructions.
std::uint32_t crc32c_plain(const void* data, std::size_t bytes, std::uint32_t before = 0) noexcept;

}  // namespace tutti
