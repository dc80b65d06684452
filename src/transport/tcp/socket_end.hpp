// transport/tcp/socket_end.hpp - one end of a tcp connection, as both sides can name it.
//
// When the peer's name for its own end is what the kernel here calls the other end, and both lie at one
// address, then the connection goes from this kernel to itself and nobody sits between.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace tutti::transport {

struct SocketEnd {
  std::uint16_t family = 0;
  std::uint16_t port = 0;
  std::array<std::uint8_t, 16> address{};

  // Nothing for sockets of other families.
  static std::optional<SocketEnd> of_own(int socket);
  static std::optional<SocketEnd> of_peer(int socket);
  bool operator==(const SocketEnd&) const = default;
  bool is_at(const SocketEnd& other) const {
    return family == other.family && address == other.address;
  }
};
static_assert(sizeof(SocketEnd) == 20);

// In Header::step of a bell whose payload is the sender's own end.
inline constexpr std::uint32_t kEndBell = 1;

}  // namespace tutti::transport
