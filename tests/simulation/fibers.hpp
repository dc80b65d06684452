// tests/simulation/fibers.hpp - code that blocks, by the thousand, in one thread under a virtual clock.
//
// Each fiber has a stack of its own and runs until it waits; what it waits for is an event, which has a time.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "core/clock.hpp"

namespace tutti::simulation {

class Fibers {
 public:
  using Id = std::size_t;
  explicit Fibers(VirtualClock& clock) : clock_(clock) {}
  ~Fibers();

  Id start(std::function<void()> body);
  // Calls `event` then, outside of any fiber.
  void at(Nanoseconds when, std::function<void()> event);
  // From a fiber: until somebody resumes it.
  void wait();
  // From an event.
  void resume(Id fiber);
  Id current() const { return current_; }
  // Until nothing is left to happen. False: fibers are left that wait.
  bool run();

 private:
  struct Fiber {
    ucontext_t context;
    void* stack = nullptr;
    std::function<void()> body;
    bool over = false;
  };
  struct Event {
    Nanoseconds when;
    std::uint64_t number;
    std::function<void()> body;
    bool operator>(const Event& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };
  static void enter(unsigned high, unsigned low);

  VirtualClock& clock_;
  ucontext_t main_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Id current_ = 0;
  std::uint64_t events_made_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace tutti::simulation
