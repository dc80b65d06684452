// core/spin_lock.hpp - a lock for a few hundred nanoseconds; with try_lock it is also a baton.
//
// It yields soon, because a holder that lost its core must get it back before anybody gains.
#pragma once

#include <atomic>
#include <thread>

namespace tutti {

class SpinLock {
 public:
  bool try_lock() noexcept {
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }
  void lock() noexcept {
    for (int tries = 0; !try_lock(); ++tries)
      if (tries > 16) std::this_thread::yield();
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace tutti
