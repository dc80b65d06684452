// tuner/cost.hpp - what a message, a copied byte and a folded byte cost, by kind of link.
//
// Measured on 2026-11-15 on a KVM guest with 2 vCPUs (Ice Lake Xeon, 2.8 GHz), unless a line says
// otherwise; medians. Choices need the ratios more than the absolute figures.
#pragma once

#include <algorithm>
#include <cstddef>

namespace tutti::tuner {

// Seconds for a byte of a call on `total` bytes. The first megabyte moves at cache speed, what is
// beyond at memory speed: the mean rises with the size, as measured ones do, and never falls.
struct ByteCost {
  double near_bytes_per_s;
  double far_bytes_per_s;

  constexpr double seconds_per_byte(double total) const {
    constexpr double kNear = 1 << 20;
    if (total <= kNear) return 1.0 / near_bytes_per_s;
    return (kNear / near_bytes_per_s + (total - kNear) / far_bytes_per_s) / total;
  }
};

struct LinkCost {
  double latency_s;  // until the first message of a step is there, once per step
  double message_s;  // what every message takes from the core that handles it
  ByteCost bytes;
};

// Shared memory. Latency: a bare 4 B flag exchange under a barrier, slowest rank, 0.27 µs. Message:
// one more line fetched from another core, taken as half of a one-way flag (0.128 µs). Bytes:
// memcpy on one core, 512 KiB and 64 MiB.
inline constexpr LinkCost kMemoryLink{0.27e-6, 0.064e-6, {37.2e9, 8.7e9}};

// Tcp between hosts (veth pair of two network namespaces). Latency: 4 B to a spinning receiver,
// 3.88 µs. Message: one send() of 64 B on loopback, 2.2 µs (another guest, 2.3 GHz). Bytes: one
// stream, 3.23 GB/s, which is also what all ranks of a host get together.
inline constexpr LinkCost kTcpLink{3.88e-6, 2.2e-6, {3.23e9, 3.23e9}};

// a += b on one core, counted by the bytes of b, 512 KiB and 64 MiB.
inline constexpr ByteCost kFold{27.3e9, 5.4e9};
// memcpy within a rank, as above.
inline constexpr ByteCost kCopy = kMemoryLink.bytes;

// Several long messages that reach one rank over the network at once collide in the switch's port.
// An assumption, not a measurement: it lets schedules with one partner per step win when messages
// are long, as they do on real networks.
inline constexpr double kIncast = 1.1;
inline constexpr double kLongMessageBytes = 64 << 10;

// Up to here direct all_reduce folds everything everywhere (one shot) instead of by slices (two):
// it saves one exchange and costs (n - 1) times the bytes. By the figures above an exchange is
// worth some ten KiB of a memory link's bytes, and 2 KiB or so of each of several tcp streams.
inline constexpr std::size_t kOneShotBytesMemory = 16 << 10;
inline constexpr std::size_t kOneShotBytesTcp = 2 << 10;

// A call whose ranks differ in size has no size that all know; it is weighed as if it had this one.
inline constexpr std::size_t kUnknownBytes = 64 << 10;

}  // namespace tutti::tuner
