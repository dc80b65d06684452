// Queues of work, each with a thread that does it in order.
#include <deque>
#include <thread>

#include "support/fake_cuda/fake.hpp"

namespace fake_cuda {
namespace {

// How many tasks of this process are waiting or running.
class Unfinished {
 public:
  void more() {
    const std::lock_guard lock(mutex_);
    ++tasks_;
  }
  void less() {
    const std::lock_guard lock(mutex_);
    if (--tasks_ == 0) none_left_.notify_all();
  }
  void wait_for_none() {
    std::unique_lock lock(mutex_);
    none_left_.wait(lock, [&] { return tasks_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_left_;
  long tasks_ = 0;
};
Unfinished& unfinished() {
  static auto* const unfinished = new Unfinished;
  return *unfinished;
}

}  // namespace

class Channel {
 public:
  void push(Task task) {
    unfinished().more();
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    something_.notify_one();
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    something_.notify_one();
  }
  // In a lost context nothing is done any more.
  void work() {
    std::this_thread::sleep_for(std::chrono::milliseconds(steering().late_ms));
    while (Task task = next()) {
      if (!is_lost()) task();
      task = nullptr;
      unfinished().less();
    }
  }

 private:
  Task next() {
    std::unique_lock lock(mutex_);
    something_.wait(lock, [&] { return closed_ || !tasks_.empty(); });
    if (tasks_.empty()) return nullptr;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

  std::mutex mutex_;
  std::condition_variable something_;
  std::deque<Task> tasks_;
  bool closed_ = false;
};

std::shared_ptr<Channel> make_channel() {
  auto channel = std::make_shared<Channel>();
  std::thread([channel] { channel->work(); }).detach();
  return channel;
}
void push(const std::shared_ptr<Channel>& channel, Task task) { channel->push(std::move(task)); }
void close(const std::shared_ptr<Channel>& channel) { channel->close(); }

void wait_until_idle() { unfinished().wait_for_none(); }

void poll_until(const std::function<bool()>& done) {
  for (int looks = 0; !done() && !is_lost(); ++looks) {
    if (looks < 200)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace fake_cuda
