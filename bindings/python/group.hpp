// group.hpp - a group as Python sees it: calls wait without the interpreter's lock.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "tutti/group.hpp"

namespace tutti_python {

class HeldGroup {
 public:
  explicit HeldGroup(std::shared_ptr<tutti::Group> group) : group_(std::move(group)) {}
  ~HeldGroup() { close(); }

  // The group; raises when it was closed.
  const std::shared_ptr<tutti::Group>& get() const;
  bool closed() const { return group_ == nullptr; }
  // Leaves the group: whatever is under way ends, and the other ranks see this one go.
  void close();
  // The same for a call that takes a Turn; raises when this thread is in one already: a signal
  // handler runs inside the call that it interrupts.
  std::shared_ptr<tutti::Group> for_turn() const;

 private:
  friend class Turn;
  std::shared_ptr<tutti::Group> group_;
  std::mutex turn_;
  std::atomic<std::thread::id> whose_turn_{};
};

// Python threads take turns: starts on one group must not overlap in time. Taken without the
// interpreter's lock.
class Turn {
 public:
  explicit Turn(HeldGroup& group) : group_(group) {
    group_.turn_.lock();
    group_.whose_turn_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  ~Turn() {
    group_.whose_turn_.store({}, std::memory_order_relaxed);
    group_.turn_.unlock();
  }
  Turn(const Turn&) = delete;

 private:
  HeldGroup& group_;
};

using GroupClass = pybind11::class_<HeldGroup, std::shared_ptr<HeldGroup>>;

void bind_group(GroupClass& group);  // making groups, and asking about them
void bind_calls(GroupClass& group);  // collectives and point to point

}  // namespace tutti_python
