#include "callbacks.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace tutti_torch {
namespace {

// Threads come when all are busy and go when they were idle for a while: a callback that waits for
// another one's future never waits for a thread.
class Pool {
 public:
  void run(std::function<void()> callback) {
    std::scoped_lock lock(mutex_);
    queue_.push_back(std::move(callback));
    if (queue_.size() > idle_)
      std::thread([this] { serve(); }).detach();
    else
      wake_.notify_one();
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (queue_.empty() && !wait_for_one(lock)) return;
      if (queue_.empty()) continue;
      std::function<void()> callback = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      callback();
      callback = nullptr;  // what it holds must not be freed under the lock
      lock.lock();
    }
  }

  bool wait_for_one(std::unique_lock<std::mutex>& lock) {
    ++idle_;
    wake_.wait_for(lock, std::chrono::seconds(10), [this] { return !queue_.empty(); });
    --idle_;
    return !queue_.empty();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  std::size_t idle_ = 0;
};

}  // namespace

void run_callback(std::function<void()> callback) {
  static Pool* pool = new Pool;  // never destroyed: its threads may outlive main
  pool->run(std::move(callback));
}

}  // namespace tutti_torch
