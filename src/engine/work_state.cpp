#include "engine/work_state.hpp"

namespace tutti::engine {

Status WorkState::wait(std::chrono::nanoseconds timeout) {
  std::shared_ptr<Driver> driver;
  {
    std::scoped_lock lock(mutex_);
    driver = driver_;
  }
  if (!done() && driver) driver->drive(*this, timeout);
  if (!done())
    return {Code::timed_out, "the operation is still under way; wait again or abort the group"};
  return status();
}

Status WorkState::status() const {
  if (!done()) return {};
  std::scoped_lock lock(mutex_);
  return status_;
}

Received WorkState::received() const {
  std::scoped_lock lock(mutex_);
  return received_;
}

void WorkState::on_complete(std::function<void(const Status&)> callback) {
  {
    std::scoped_lock lock(mutex_);
    if (!done_.load(std::memory_order_relaxed)) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(status());
}

void WorkState::complete(const Status& status, const Received& received) {
  std::vector<std::function<void(const Status&)>> callbacks;
  {
    std::scoped_lock lock(mutex_);
    if (done_.load(std::memory_order_relaxed)) return;
    status_ = status;
    received_ = received;
    callbacks.swap(callbacks_);
    driver_.reset();  // a handle that the caller keeps must not keep links and threads
    done_.store(true, std::memory_order_seq_cst);
  }
  for (auto& callback : callbacks) callback(status);
}

}  // namespace tutti::engine
