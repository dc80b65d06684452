// tuner/built_in.hpp - the built-in costs, for machines that were not measured.
//
// Measured on 2026-11-15 on a KVM guest with 2 vCPUs (Ice Lake Xeon, 2.8 GHz, L2 1.25 MiB), Linux
// 6.18, unless a line says otherwise; medians. Choices need the ratios more than the absolute
// figures. group/calibrate.hpp measures the same on the machine at hand.
#pragma once

#include <cstddef>

#include "cost/curve.hpp"

namespace tutti::tuner {

using cost::Curve;

inline constexpr const char* kBuiltInName = "built in (2 vCPU Xeon, Ice Lake, 2.8 GHz)";
inline constexpr const char* kBuiltInDate = "2026-11-15T00:00:00Z";

constexpr Curve::Knot at_rate(double kib, double gigabytes_per_s) {
  return {kib * 1024, kib * 1024 / (gigabytes_per_s * 1e9)};
}

// memcpy on one core, warm.
inline constexpr Curve::Knot kCopy[] = {at_rate(4, 165),     at_rate(16, 180),   at_rate(64, 41),
                                        at_rate(256, 41),    at_rate(1024, 27),  at_rate(4096, 13),
                                        at_rate(16384, 5.6), at_rate(65536, 8.7)};
// a += b on one core, warm, by the bytes of b.
inline constexpr Curve::Knot kFold[] = {at_rate(4, 90),      at_rate(16, 104),   at_rate(64, 39),
                                        at_rate(256, 39),    at_rate(1024, 23),  at_rate(4096, 12),
                                        at_rate(16384, 5.4), at_rate(65536, 5.4)};
// process_vm_readv, one direction.
inline constexpr Curve::Knot kPull[] = {at_rate(16, 17.8), at_rate(256, 23.3), at_rate(4096, 7.17),
                                        at_rate(65536, 4.06)};

// Flags: a bare 4 B exchange of two ranks under a barrier, slowest rank; of 16 ranks on another
// guest with 16 cores.
inline constexpr Curve::Knot kMeet[] = {{2, 0.27e-6}, {16, 0.76e-6}};

// What a byte of a window costs beyond a copy within one cache, because it goes from core to core:
// its writer has to take the line back from the last reader, and its reader from the writer. 32 KiB,
// two cores of a KVM guest (Sapphire Rapids), 2026-11-15: 2.3 µs to write, 3.2 µs to read. Beyond
// that prefetching hides half of it (512 KiB: 27 and 28 µs).
inline constexpr double kShowByte = 0.06e-9;
inline constexpr double kTakeByte = 0.09e-9;
inline constexpr double kCrossingBytes = 64 << 10;
inline constexpr double kPrefetched = 0.5;
// What a call costs beside the meeting: 0.42 µs for 4 B where bare flags take 0.27 (same machine).
inline constexpr double kCallSeconds = 0.15e-6;
// What a core keeps near itself.
inline constexpr double kNearBytes = 256 << 10;

// Messages over shared memory, through the arena: group/calibrate_links.hpp on two ranks, fastest
// of several runs on a machine that others used too.
inline constexpr double kMemoryLatency = 0.93e-6;
inline constexpr double kMemoryMessage = 0.23e-6;
inline constexpr Curve::Knot kMemoryBytes[] = {at_rate(256, 11), at_rate(1024, 9.7),
                                               at_rate(4096, 8.8)};

// Tcp between hosts (veth pair of two network namespaces). Latency: 4 B to a spinning receiver.
// Message: one send() of 64 B on loopback (another guest, 2.3 GHz). Bytes: one stream, which is
// also what all ranks of a host get together.
inline constexpr double kTcpLatency = 3.88e-6;
inline constexpr double kTcpMessage = 2.2e-6;
// Of a core, at either end: loopback in one thread, sending and receiving 64 KiB in turn.
inline constexpr double kTcpByte = 0.09e-9;
inline constexpr Curve::Knot kTcpBytes[] = {at_rate(1024, 3.23)};

// Several long messages that reach one rank over the network at once collide in the switch's port.
// An assumption, not a measurement: it lets schedules with one partner per step win when messages
// are long, as they do on real networks.
inline constexpr double kIncast = 1.1;
inline constexpr double kLongMessageBytes = 64 << 10;

// A call whose ranks differ in size has no size that all know; it is weighed as if it had this one.
inline constexpr std::size_t kUnknownBytes = 64 << 10;

// Folding everything everywhere instead of by slices has to promise this much: the model is no
// better than that.
inline constexpr double kWorthOneShot = 0.9;

}  // namespace tutti::tuner
