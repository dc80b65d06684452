// engine/spinlock.hpp - a lock for a handful of instructions; yields when there are more threads
// than cores. try_lock makes it a baton.
#pragma once

#include <atomic>
#include <thread>

namespace tutti::engine {

class Spinlock {
 public:
  bool try_lock() noexcept {
    return !taken_.load(std::memory_order_relaxed) &&
           !taken_.exchange(true, std::memory_order_acquire);
  }
  void lock() noexcept {
    for (int tries = 0; !try_lock(); ++tries)
      if (tries > 64) std::this_thread::yield();
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

}  // namespace tutti::engine
