#include "callbacks.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace tutti_torch {
namespace {

using Clock = std::chrono::steady_clock;

// One callback after the other, in the order in which operations ended. That order is the same on all
// ranks, and so is then the order in which callbacks start further operations. Only when a callback
// has not returned for a while, because it waits for another one's future, does the next one begin
// beside it.
class Queue {
 public:
  void run(std::function<void()> callback) {
    std::scoped_lock lock(mutex_);
    if (ended_) {
      new std::function<void()>(std::move(callback));  // what it holds cannot be freed any more
      return;
    }
    queue_.push_back(std::move(callback));
    if (idle_ == 0)
      std::thread([this] { serve(); }).detach();
    else
      wake_.notify_one();
  }

  void end() {
    std::unique_lock lock(mutex_);
    ended_ = true;
    idle_again_.wait_for(lock, std::chrono::seconds(2),
                         [this] { return queue_.empty() && running_ == 0; });
  }

 private:
  static constexpr auto kPatience = std::chrono::milliseconds(100);
  static constexpr auto kIdleLife = std::chrono::seconds(10);

  void serve() {
    std::unique_lock lock(mutex_);
    while (wait_for_turn(lock)) {
      std::function<void()> callback = std::move(queue_.front());
      queue_.pop_front();
      ++running_;
      begun_ = Clock::now();
      lock.unlock();
      callback();
      callback = nullptr;  // what it holds must not be freed under the lock
      lock.lock();
      --running_;
      wake_.notify_one();
      if (ended_) idle_again_.notify_all();
    }
  }

  // False when there was nothing to do for so long that the thread may go.
  bool wait_for_turn(std::unique_lock<std::mutex>& lock) {
    const Clock::time_point bored = Clock::now() + kIdleLife;
    ++idle_;
    while (!may_begin() && (!queue_.empty() || Clock::now() < bored))
      wake_.wait_until(lock, queue_.empty() ? bored : begun_ + kPatience);
    --idle_;
    return !queue_.empty();
  }

  bool may_begin() const {
    return !queue_.empty() && (running_ == 0 || Clock::now() >= begun_ + kPatience);
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_again_;
  std::deque<std::function<void()>> queue_;
  Clock::time_point begun_;  // the callback that was begun last
  std::size_t idle_ = 0;
  std::size_t running_ = 0;
  bool ended_ = false;
};

// Never destroyed: its threads may outlive main.
Queue& callbacks() {
  static Queue* const queue = new Queue;
  return *queue;
}

}  // namespace

void run_callback(std::function<void()> callback) { callbacks().run(std::move(callback)); }

void end_callbacks() { callbacks().end(); }

}  // namespace tutti_torch
