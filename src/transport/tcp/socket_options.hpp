// transport/tcp/socket_options.hpp - what a TCP connection is told about silence and buffers.
//
// Options that a kernel does not have are not an error: deaths are noticed later, or small messages
// wait longer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core/clock.hpp"

namespace tutti::transport {

// Who is silent for too long is told by the pulse (pulse.hpp), and the kernel must not decide earlier:
// its user timeout takes a full window for a death, its keepalive a stopped process for a living one.
// Neither is used. What was lost is sent again as often as core/retransmission.hpp says.
void leave_silence_to_us(int socket, Nanoseconds dead_after);
// In order, since the connection was made; nothing: this is no TCP socket.
std::optional<std::uint64_t> bytes_received(int socket);
// That have come and that nobody has read.
std::size_t unread_bytes(int socket);
// That were written and that the peer's host has not confirmed.
std::size_t unacknowledged_bytes(int socket);
// "auto": the system's congestion control, but cubic where that is bbr; "system": as it is; else by
// name. False: the kernel has no such one, or does not let us.
//
// Training sends in bursts with pauses between them. After a pause bbr let a 512 KiB piece wait for 70
// to 100 ms about once a step (2 hosts, tbf 200 Mbit/s, kernel 6.18, 2026-11-15: the step's
// communication took 530 to 560 ms, with cubic 480 to 490; without pauses both took 530).
bool choose_congestion_control(int socket, const std::string& wanted);
// A look at an empty socket asks the network card for so long, instead of waiting for its interrupt. Loopback
// and veth have no queue to ask. False: more than net.core.busy_read takes CAP_NET_ADMIN.
bool poll_busily(int socket, int microseconds);
// The kernel takes no more while it holds this much that it has not sent yet.
void bound_unsent(int socket, std::size_t bytes);
// What the kernel may hold, sent and not sent, its own overhead included.
void set_send_buffer(int socket, std::size_t bytes);
// The shortest way there and back that the kernel has seen; max(): it does not say.
Nanoseconds shortest_round_trip(int socket);

}  // namespace tutti::transport
