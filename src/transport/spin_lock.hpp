// transport/spin_lock.hpp - a lock for a few hundred nanoseconds: a link's sending side.
//
// It yields soon, because a holder that lost its core must get it back before anybody gains.
#pragma once

#include <atomic>
#include <thread>

namespace tutti::transport {

class SpinLock {
 public:
  void lock() noexcept {
    for (int tries = 0; held_.exchange(true, std::memory_order_acquire); ++tries)
      if (tries > 16) std::this_thread::yield();
  }
  bool try_lock() noexcept { return !held_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace tutti::transport
