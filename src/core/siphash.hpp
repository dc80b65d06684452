// core/siphash.hpp - SipHash-2-4: a tag of a few bytes that nobody can make who does not know the key.
//
// For headers on their way, where HMAC-SHA256 would cost more than the message. Thread-safety: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

struct SipKey {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};

std::uint64_t siphash(const SipKey& key, const void* data, std::size_t bytes) noexcept;

}  // namespace tutti
