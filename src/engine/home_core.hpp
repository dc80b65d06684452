// engine/home_core.hpp - ranks that outnumber the cores of their machine, dealt out over them.
//
// Ranks that wait for each other and yield look busy to Linux, and as if their caches were warm: of four on
// two cores it leaves three on one for up to a second after the start, in which a small collective takes 1.5
// times as long (4 ranks, 2 vCPUs, kernel 6.18, tcp on loopback, 8 B: 30 µs two and two, 45 µs three and one;
// 2026-11-20). So whoever waits looks now and then whether it is on the core that is its share, and goes there. It
// stays free to run anywhere, and after a few moves the system has its way: it may know of somebody else there.
//
// Thread-safety  settle() once, before the first group is handed out; yield() from any thread. Only the
//                thread that settled ever moves.
#pragma once

#include <sched.h>

#include <atomic>
#include <thread>

#include "core/threads.hpp"

namespace tutti::engine {

class HomeCore {
 public:
  // The calling thread's core from now on; negative: it has none of its own.
  void settle(int core) {
    if (core < 0) return;
    thread_ = std::this_thread::get_id();
    core_.store(core, std::memory_order_release);
    move_to_core(core);
  }

  void yield() {
    std::this_thread::yield();
    const int core = core_.load(std::memory_order_acquire);
    if (core < 0 || thread_ != std::this_thread::get_id() || ++turns_ % kTurns != 0) return;
    if (::sched_getcpu() == core) return;
    move_to_core(core);
    if (++moves_ == kMostMoves) core_.store(-1, std::memory_order_relaxed);
  }

 private:
  // Some milliseconds of small collectives.
  static constexpr unsigned kTurns = 32;
  static constexpr int kMostMoves = 16;

  std::atomic<int> core_{-1};
  std::thread::id thread_;
  unsigned turns_ = 0;
  int moves_ = 0;
};

}  // namespace tutti::engine
