// transport/tcp/socket_options.hpp - what a TCP connection is told about silence and buffers.
//
// Options that a kernel does not have are not an error: deaths are noticed later, or small messages
// wait longer.
#pragma once

#include <cstddef>

#include "core/clock.hpp"

namespace tutti::transport {

// The kernel's defaults leave a host that lost its power unnoticed for minutes to hours.
void watch_for_silence(int socket);
// The kernel takes no more while it holds this much that it has not sent yet.
void bound_unsent(int socket, std::size_t bytes);
// What the kernel may hold, sent and not sent, its own overhead included.
void set_send_buffer(int socket, std::size_t bytes);
// The shortest way there and back that the kernel has seen; max(): it does not say.
Nanoseconds shortest_round_trip(int socket);

}  // namespace tutti::transport
