// transport/listeners.hpp - where a rank can be reached by TCP until everybody has come.
#pragma once

#include <string>

#include "core/sockets.hpp"
#include "tutti/config.hpp"

namespace tutti::transport {

// One socket on loopback and one on the interface towards other hosts, each on a free port; never
// on all interfaces at once. Either may be missing on a machine that lacks it.
struct TcpListeners {
  Descriptor loopback;
  Descriptor outward;
  std::string loopback_address;
  std::string outward_address;

  // config.host, else config.interface, else the first interface that is up. Code::invalid_argument
  // if what the config names is not there.
  static Result<TcpListeners> open(const Config& config, int backlog);
};

}  // namespace tutti::transport
