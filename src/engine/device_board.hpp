// engine/device_board.hpp - host memory by which ranks of one host follow collectives on device memory.
//
// Each rank has one that all others have mapped, and that their devices can reach. Streams and kernels
// write some of its words, hosts others. Collectives on device memory are counted by *tickets*, from 1,
// the same on all ranks; what belongs to one lies at its ticket's turn in a ring.
//
//   entered, left   how far this rank's stream has come; where ranks meet by memory operations or by
//                   their hosts, others wait for these words
//   done            this rank's collective is over, its results are there
//   calls           what this rank's host has called
//   posts           what the others tell this rank: where it may read and write (cuda/job.hpp)
//
// A turn of the ring is used again when its collective is over on this rank, and so is past its last
// meeting on all of them: docs/formats/device_board.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cuda/job.hpp"
#include "engine/fingerprint.hpp"

namespace tutti::engine {

inline constexpr std::uint64_t kDeviceBoardMagic = 0x6472616f625454;  // "TTboard"
// Collectives of one group that may be under way at once.
inline constexpr std::uint64_t kDeviceRing = 64;

struct DeviceCall {
  std::atomic<std::uint64_t> ticket;  // stored last; 0: none yet
  std::uint64_t sequence;
  Fingerprint call;
  // Where only pairs know: bytes to and from each rank.
  std::uint64_t to[cuda::kMostRanks];
  std::uint64_t from[cuda::kMostRanks];

  // As `peer` has to see it.
  Fingerprint for_peer(int peer) const {
    Fingerprint call = this->call;
    call.to_you = to[peer];
    call.from_you = from[peer];
    return call;
  }
};

struct DeviceBoard {
  std::uint64_t magic;
  alignas(128) std::atomic<std::uint64_t> entered;
  alignas(128) std::atomic<std::uint64_t> left;
  alignas(128) std::atomic<std::uint64_t> done;
  alignas(128) std::atomic<std::uint64_t> fault;  // cuda::FaultWord
  alignas(
      128) std::atomic<std::uint32_t> abort;  // not 0: whoever waits, and whoever works, is to stop
  alignas(128) DeviceCall calls[kDeviceRing];
  alignas(128) cuda::Post posts[kDeviceRing][cuda::kMostRanks];

  DeviceCall& call(std::uint64_t ticket) { return calls[ticket % kDeviceRing]; }
  const DeviceCall& call(std::uint64_t ticket) const { return calls[ticket % kDeviceRing]; }
};

}  // namespace tutti::engine
