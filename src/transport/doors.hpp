// transport/doors.hpp - where a rank can be reached until everybody has come.
#pragma once

#include <string>

#include "core/sockets.hpp"
#include "transport/listeners.hpp"
#include "tutti/config.hpp"

namespace tutti::transport {

// The two doors of transport.hpp, each open only if some transport uses it.
struct Doors {
  Descriptor local;  // a Unix socket
  std::string local_address;
  TcpListeners network;

  Status open_local(int backlog);
  Status open_network(const Config& config, int backlog);
};

}  // namespace tutti::transport
