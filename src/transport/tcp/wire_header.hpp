// transport/tcp/wire_header.hpp - a header as it goes over a connection: with checksums of itself and of
// its payload.
//
// The header is believed before its payload has come, so it has a checksum of its own, which also covers
// that of the payload. Where a link goes without checksums both are 0, and nobody looks. A sender that knows
// that its connection never leaves the kernel spares the payload's, and says so (kUnchecked).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/crc32c.hpp"
#include "transport/message.hpp"

namespace tutti::transport {

// In Header::flags, between the two ends of a connection only.
inline constexpr std::uint8_t kUnchecked = 32;

struct WireHeader {
  Header header;
  std::uint32_t payload_check = 0;
  std::uint32_t header_check = 0;  // of everything before it

  WireHeader() = default;
  WireHeader(const Header& plain) : header(plain) {}  // without checksums
  static WireHeader sealed(const Header& header, const void* payload, bool with_payload = true) {
    WireHeader made(header);
    if (with_payload)
      made.payload_check = crc32c(payload, header.bytes);
    else
      made.header.flags |= kUnchecked;
    made.header_check = made.check();
    return made;
  }
  std::uint32_t check() const { return crc32c(this, offsetof(WireHeader, header_check)); }
};
static_assert(sizeof(WireHeader) == 56);

}  // namespace tutti::transport
