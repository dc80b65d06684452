// group.hpp - a group as Python sees it: calls wait without the interpreter's lock.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <mutex>
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
  // Python threads take turns: starts on one group must not overlap in time.
  std::mutex& turn() { return turn_; }

 private:
  std::shared_ptr<tutti::Group> group_;
  std::mutex turn_;
};

using GroupClass = pybind11::class_<HeldGroup, std::shared_ptr<HeldGroup>>;

void bind_group(GroupClass& group);  // making groups, and asking about them
void bind_calls(GroupClass& group);  // collectives and point to point

}  // namespace tutti_python
