// support/transports/inproc_endpoints.hpp - endpoints of ranks that share a process, linked directly.
//
// For tests and for the simulator: no sockets, no handshake. The windows, rings and loans are those
// of production.
#pragma once

#include <memory>
#include <vector>

#include "transport/endpoint.hpp"
#include "transport/memory_link.hpp"

namespace tutti::transport {

// Endpoint r is rank r's. `visibility` may delay when published slots are seen; it must outlive
// them.
Result<std::vector<std::unique_ptr<Endpoint>>> make_inproc_endpoints(
    int ranks, const Config& config, Visibility* visibility = nullptr);

}  // namespace tutti::transport
