#include "engine/inbox.hpp"

#include <iterator>
#include <mutex>
#include <utility>

namespace tutti::engine {

bool Inbox::put(const Incoming& message) {
  std::scoped_lock lock(lock_);
  if (!failure_.ok()) return false;
  messages_.push_back(message);
  has_news_.store(true, std::memory_order_release);
  return true;
}

void Inbox::put_always(const Incoming& message) {
  std::scoped_lock lock(lock_);
  messages_.push_back(message);
  has_news_.store(true, std::memory_order_release);
}

Status Inbox::put(Operation operation) {
  std::scoped_lock lock(lock_);
  if (!failure_.ok()) return failure_;
  operation.sequence = take_sequence();
  operation.work->set_call(operation.launch->collective, number_of(operation.sequence));
  if (operation.launch->on_device)
    operation.ticket = last_ticket_.fetch_add(1, std::memory_order_relaxed) + 1;
  operations_.push_back(std::move(operation));
  queued_.fetch_add(1, std::memory_order_relaxed);
  has_news_.store(true, std::memory_order_release);
  return {};
}

Status Inbox::put(std::vector<Posting> postings) {
  std::scoped_lock lock(lock_);
  if (!failure_.ok()) return failure_;
  postings_.insert(postings_.end(), std::make_move_iterator(postings.begin()),
                   std::make_move_iterator(postings.end()));
  has_news_.store(true, std::memory_order_release);
  return {};
}

bool Inbox::take(std::vector<Incoming>& messages, std::vector<Posting>& postings) {
  if (!has_news()) return false;
  std::scoped_lock lock(lock_);
  has_news_.store(false, std::memory_order_relaxed);
  messages.swap(messages_);
  postings.swap(postings_);
  return true;
}

bool Inbox::take_next(Operation& next) {
  if (!has_queued()) return false;
  std::scoped_lock lock(lock_);
  if (operations_.empty() || !failure_.ok()) return false;
  next = std::move(operations_.front());
  operations_.pop_front();
  queued_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

bool Inbox::fail(const Status& status) {
  std::scoped_lock lock(lock_);
  if (!failure_.ok()) return false;
  failure_ = status;
  return true;
}

void Inbox::announce_failure() {
  failed_.store(true, std::memory_order_release);
  has_news_.store(true, std::memory_order_release);
}

Status Inbox::failure() const {
  std::scoped_lock lock(lock_);
  return failure_;
}

// After a failure nothing is put any more: whoever asks twice finds these lists empty.
void Inbox::take_rest(Rest& rest) {
  std::scoped_lock lock(lock_);
  queued_.store(0, std::memory_order_relaxed);
  if (!operations_.empty()) rest.operations.swap(operations_);
  if (!messages_.empty()) rest.messages.swap(messages_);
  if (!postings_.empty()) rest.postings.swap(postings_);
}

}  // namespace tutti::engine
