// transport/ofi/frame.hpp - what goes over the fabric as a message: a header, sealed with the link's key, and a
// small payload. docs/transports/ofi.md has the layout and what each kind is for.
//
// Whoever reaches an endpoint of a fabric can send to it: only the seal shows that a frame is the peer's, and its
// number that it is not one that was heard before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/crc32c.hpp"
#include "core/siphash.hpp"
#include "transport/message.hpp"

namespace tutti::transport::ofi {

enum class FrameKind : std::uint32_t {
  message,   // the header's, with its payload behind it
  announce,  // of a large one: its payload wants a place; behind it a LargeNotice
  grant,     // the place for it; behind it a Grant
  pair,  // two messages: behind the header that of the first, its payload, and the payload of the header's
};

struct FrameHeader {
  Header header;
  std::uint32_t sender = 0;  // its rank
  FrameKind kind = FrameKind::message;
  std::uint64_t number = 0;  // of this link's frames in this direction, from 0 on
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_check = 0;
  std::uint64_t seal = 0;  // of everything before it

  std::uint64_t seal_by(const SipKey& key) const {
    return siphash(key, this, offsetof(FrameHeader, seal));
  }
  void close(const SipKey& key, const void* payload) {
    payload_check = crc32c(payload, payload_bytes);
    seal = seal_by(key);
  }
};
static_assert(sizeof(FrameHeader) == 80);

// A frame with both its headers stays below the 16 KiB up to which rxm sends a message as it is.
inline constexpr std::size_t kFramePayload = 15 * 1024;
// With room for a control message before it.
inline constexpr std::size_t kFrameBytes = kFramePayload + kMaxControlBytes + 256;
static_assert(sizeof(FrameHeader) + sizeof(Header) <= 256);

inline constexpr std::size_t kMostRails = 4;

struct LargeNotice {
  std::uint32_t transfer = 0;  // the sender's number for it
  std::uint32_t pieces = 0;    // writes that bring it, each by a rail of its own
};

// A key that is no number (FI_MR_RAW): whoever writes there has it made into one first.
struct RawKey {
  std::uint64_t base = 0;  // of the memory that it opens
  std::uint32_t bytes = 0;
  std::uint8_t key[116] = {};
};
static_assert(sizeof(RawKey) == 128);

struct Grant {
  std::uint32_t transfer = 0;
  std::uint32_t word = 0;  // that goes with each write
  struct Way {
    std::uint64_t address = 0;
    std::uint64_t key = 0;
  };
  Way ways[kMostRails];         // by rail
  RawKey raw_keys[kMostRails];  // of providers that have them; others' grants end before

  bool is_raw() const { return raw_keys[0].bytes > 0; }
  std::size_t bytes() const { return is_raw() ? sizeof(Grant) : offsetof(Grant, raw_keys); }
};
constexpr bool is_length_of_grant(std::size_t bytes) {
  return bytes == sizeof(Grant) || bytes == offsetof(Grant, raw_keys);
}

}  // namespace tutti::transport::ofi
