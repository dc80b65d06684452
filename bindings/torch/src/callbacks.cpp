#include "callbacks.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace tutti_torch {
namespace {

// Whoever takes a callback first sends for another thread if there are more: a callback that waits for
// what a later one does holds nobody up, and as long as none waits two threads do it all.
class Queue {
 public:
  void run(std::function<void()> callback) {
    std::scoped_lock lock(mutex_);
    if (ended_) {
      new std::function<void()>(std::move(callback));  // what it holds cannot be freed any more
      return;
    }
    queue_.push_back(std::move(callback));
    if (!coming_) send_for_a_thread();
  }

  void end() {
    std::unique_lock lock(mutex_);
    ended_ = true;
    idle_again_.wait_for(lock, std::chrono::seconds(2),
                         [this] { return queue_.empty() && running_ == 0; });
  }

 private:
  static constexpr auto kIdleLife = std::chrono::seconds(10);

  void send_for_a_thread() {
    coming_ = true;
    if (idle_ == 0)
      std::thread([this] { serve(); }).detach();
    else
      wake_.notify_one();
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (wait_for_work(lock)) {
      std::function<void()> callback = std::move(queue_.front());
      queue_.pop_front();
      ++running_;
      coming_ = false;
      if (!queue_.empty()) send_for_a_thread();
      lock.unlock();
      callback();
      callback = nullptr;  // what it holds must not be freed under the lock
      lock.lock();
      --running_;
      if (ended_) idle_again_.notify_all();
    }
  }

  // False when there was nothing to do for so long that the thread may go.
  bool wait_for_work(std::unique_lock<std::mutex>& lock) {
    ++idle_;
    const bool found = wake_.wait_for(lock, kIdleLife, [this] { return !queue_.empty(); });
    --idle_;
    return found;
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_again_;
  std::deque<std::function<void()>> queue_;
  std::size_t idle_ = 0;
  std::size_t running_ = 0;
  bool coming_ = false;  // a thread that will take the front of the queue is on its way
  bool ended_ = false;
};

// Never destroyed: its threads may outlive main. They stay with the parent of a fork(), whose child
// gets a queue of its own.
Queue& callbacks() {
  static std::atomic<Queue*> queue = new Queue;
  static std::atomic<pid_t> owner = ::getpid();
  if (owner.exchange(::getpid()) != ::getpid()) queue = new Queue;
  return *queue;
}

thread_local int depth_of_this_thread = 0;

}  // namespace

void run_callback(std::function<void()> callback) { callbacks().run(std::move(callback)); }

void end_callbacks() { callbacks().end(); }

int chain_depth() { return depth_of_this_thread; }

void set_chain_depth(int depth) { depth_of_this_thread = depth; }

}  // namespace tutti_torch
