#include "transport/doors.hpp"

#include <fmt/format.h>

#include "core/auth.hpp"

namespace tutti::transport {
namespace {

std::string random_name() {
  std::string name = "@tutti-";
  for (const char byte : random_bytes(12))
    name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return name;
}

}  // namespace

Status Doors::open_local(int backlog) {
  const std::string name = random_name();
  auto address = SocketAddress::parse(name);
  if (!address.ok()) return address.status();
  auto listener = listen_on(*address, backlog);
  if (!listener.ok()) return listener.status();
  local = std::move(*listener);
  local_address = name;
  return {};
}

Status Doors::open_network(const Config& config, int backlog) {
  auto listeners = TcpListeners::open(config, backlog);
  if (!listeners.ok()) return listeners.status();
  network = std::move(*listeners);
  return {};
}

}  // namespace tutti::transport
