#include "prefetch.hpp"

#include <chrono>
#include <csignal>
#include <exception>
#include <utility>

namespace pretrain {

using tutti::Code;
using tutti::Result;
using tutti::Status;

Prefetch::Prefetch(Read read, Next next, std::size_t depth)
    : read_(std::move(read)), next_(std::move(next)), depth_(depth), thread_([this] { run(); }) {}

Prefetch::~Prefetch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Result<TokenBatch> Prefetch::take(const MicroPlace& place) {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  if (!reads_ || !(first_ == place)) {
    ready_.clear();
    first_ = to_read_ = place;
    ++restarts_;
    reads_ = true;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return !ready_.empty(); });
  Result<TokenBatch> batch = std::move(ready_.front());
  ready_.pop_front();
  if (batch.ok())
    first_ = next_(first_);
  else
    reads_ = false;
  lock.unlock();
  changed_.notify_all();
  waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return batch;
}

double Prefetch::take_waited_s() { return std::exchange(waited_s_, 0); }

void Prefetch::run() {
  sigset_t all;  // signals are for the thread that trains
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto may_read = [&] {
      return reads_ && ready_.size() < depth_ && (ready_.empty() || ready_.back().ok());
    };
    changed_.wait(lock, [&] { return ends_ || may_read(); });
    if (ends_) return;
    const MicroPlace place = to_read_;
    const std::uint64_t restarts = restarts_;
    lock.unlock();
    Result<TokenBatch> batch = read_safely(place);
    lock.lock();
    if (restarts != restarts_) continue;  // something else is wanted by now
    to_read_ = next_(place);
    ready_.push_back(std::move(batch));
    changed_.notify_all();
  }
}

Result<TokenBatch> Prefetch::read_safely(const MicroPlace& place) const {
  try {
    return read_(place);
  } catch (const std::bad_alloc&) {
    return Status(Code::out_of_memory, "there is no memory for the tokens of the next batch");
  } catch (const std::exception& error) {
    return Status(Code::internal, std::string("reading tokens: ") + error.what());
  }
}

}  // namespace pretrain
