// transport/doorbell.hpp - the word by which a rank tells its neighbours in memory whether it sleeps.
//
// In its low bits stands what the owner is doing, above them how often it has gone to sleep, so that
// a neighbour rings once per sleep.
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti::transport {

using Doorbell = std::atomic<std::uint32_t>;

enum DoorbellState : std::uint32_t { kAwake = 0, kSleeping = 1, kIdle = 2, kDoorbellMask = 3 };

// Whether the owner sleeps over work. What it shall find when it wakes must have been stored with
// memory_order_seq_cst before.
inline bool is_asleep(const Doorbell& bell) noexcept {
  return (bell.load(std::memory_order_seq_cst) & kDoorbellMask) == kSleeping;
}

}  // namespace tutti::transport
