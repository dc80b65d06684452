// engine/spin_budget.hpp - how long to wait awake for something that may come any moment.
//
// With a core for every rank it pays to look again and again: what is awaited is there sooner than
// a sleeper wakes up. Where that turns out wrong (two ranks share a core after all, or the other
// one is busy) the budget is halved each time; it grows again slowly while waiting awake works.
//
// Thread-safety  any thread; two that adapt at the same time may lose one of the changes.
#pragma once

#include <algorithm>
#include <atomic>

namespace tutti::engine {

class SpinBudget {
 public:
  explicit SpinBudget(long most = 0) : most_(most), looks_(most) {}

  long looks() const { return looks_.load(std::memory_order_relaxed); }
  void was_in_vain() { set(std::max(looks() / 2, least())); }
  void was_rewarded() {
    if (looks() < most_) set(std::min(most_, looks() + least()));
  }

 private:
  long least() const { return most_ > 0 ? std::max(most_ / 64, 1L) : 0; }
  void set(long looks) { looks_.store(looks, std::memory_order_relaxed); }

  long most_;
  std::atomic<long> looks_;
};

}  // namespace tutti::engine
