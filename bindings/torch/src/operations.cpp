#include "operations.hpp"

#include <algorithm>
#include <atomic>
#include <memory>

namespace tutti_torch {

bool Operations::done() const {
  return std::all_of(each_.begin(), each_.end(), [](const tutti::Work& one) { return one.done(); });
}

tutti::Status Operations::status() const {
  for (const tutti::Work& one : each_)
    if (tutti::Status status = one.status(); !status.ok()) return status;
  return {};
}

tutti::Status Operations::wait(std::chrono::milliseconds timeout) {
  const bool is_bounded = timeout.count() > 0;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  tutti::Status failure;
  for (tutti::Work& one : each_) {
    const std::chrono::nanoseconds left = deadline - std::chrono::steady_clock::now();
    tutti::Status status =
        is_bounded ? one.wait(std::max(left, std::chrono::nanoseconds(1))) : one.wait();
    if (failure.ok()) failure = std::move(status);
  }
  return failure;
}

tutti::Status Operations::wait_on(void* stream) {
  tutti::Status failure;
  for (tutti::Work& one : each_)
    if (tutti::Status status = one.wait_on(stream); failure.ok()) failure = std::move(status);
  return failure;
}

void Operations::when_done(std::function<void()> then) const {
  if (each_.empty()) return then();
  auto left = std::make_shared<std::atomic<std::size_t>>(each_.size());
  const auto count = [left, then = std::move(then)](const tutti::Status&) {
    if (left->fetch_sub(1) == 1) then();
  };
  for (const tutti::Work& one : each_) tutti::Work(one).on_complete(count);
}

tutti::Received Operations::received() const {
  return each_.empty() ? tutti::Received() : each_.front().received();
}

}  // namespace tutti_torch
