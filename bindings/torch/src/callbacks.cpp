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
    if (ended_) {
      new std::function<void()>(std::move(callback));  // what it holds cannot be freed any more
      return;
    }
    queue_.push_back(std::move(callback));
    if (queue_.size() > idle_)
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
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (queue_.empty() && !wait_for_one(lock)) return;
      if (queue_.empty()) continue;
      std::function<void()> callback = std::move(queue_.front());
      queue_.pop_front();
      ++running_;
      lock.unlock();
      callback();
      callback = nullptr;  // what it holds must not be freed under the lock
      lock.lock();
      --running_;
      if (ended_) idle_again_.notify_all();
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
  std::condition_variable idle_again_;
  std::deque<std::function<void()>> queue_;
  std::size_t idle_ = 0;
  std::size_t running_ = 0;
  bool ended_ = false;
};

// Never destroyed: its threads may outlive main.
Pool& pool() {
  static Pool* const pool = new Pool;
  return *pool;
}

}  // namespace

void run_callback(std::function<void()> callback) { pool().run(std::move(callback)); }

void end_callbacks() { pool().end(); }

}  // namespace tutti_torch
