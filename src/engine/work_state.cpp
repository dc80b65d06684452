#include "engine/work_state.hpp"

#include <fmt/format.h>

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

bool WorkState::is_launched() const {
  if (done()) return true;
  std::scoped_lock lock(mutex_);
  return !gate_ || gate_->is_launched();
}

Status WorkState::wait_on(void* stream) {
  std::shared_ptr<Driver> driver;
  std::shared_ptr<StreamGate> gate;
  {
    std::scoped_lock lock(mutex_);
    driver = driver_;
    gate = gate_;
  }
  if (done()) return status();
  if (!gate || gate->is_for_host()) return wait(std::chrono::nanoseconds::max());
  const auto until_launched = [&]() -> Status {
    if (driver) driver->drive_to_device(*this);
    return status();
  };
  // A stream that waits for what only a caller drives would wait for good.
  if (driver && !driver->goes_on_alone())
    if (Status status = until_launched(); !status.ok() || done()) return status;
  const auto waits = gate->try_wait_on(stream);
  if (!waits.ok() || *waits) return waits.status();
  if (Status status = until_launched(); !status.ok() || done()) return status;
  return gate->try_wait_on(stream).status();
}

Result<bool> WorkState::try_wait_on(void* stream) {
  std::shared_ptr<Driver> driver;
  std::shared_ptr<StreamGate> gate;
  {
    std::scoped_lock lock(mutex_);
    driver = driver_;
    gate = gate_;
  }
  if (done()) return true;
  if (!gate) return false;
  if (driver && !driver->goes_on_alone() && !gate->is_launched()) return false;
  return gate->try_wait_on(stream);
}

bool WorkState::help() {
  std::shared_ptr<Driver> driver;
  {
    std::scoped_lock lock(mutex_);
    driver = driver_;
  }
  return !done() && driver && driver->help();
}

std::string WorkState::describe() const {
  std::scoped_lock lock(mutex_);
  std::string what = !collective_   ? "a message"
                     : number_ == 0 ? std::string(to_string(*collective_))
                                    : fmt::format("{} #{}", to_string(*collective_), number_);
  return driver_ ? fmt::format("{} of group '{}'", what, driver_->group_name()) : what;
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
    gate_.reset();
    done_.store(true, std::memory_order_seq_cst);
  }
  for (auto& callback : callbacks) callback(status);
}

}  // namespace tutti::engine
