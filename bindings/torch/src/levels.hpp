// levels.hpp - the groups of one backend: its own, and one more for each depth of chained functions.
//
// A function that was chained to a future runs beside the program, at a moment that differs from rank
// to rank. A collective that it starts would come to the group in another order on each rank, so it
// goes to a duplicate of the group on which only functions of this depth start collectives; those run
// one after the other, in the order in which they were chained (docs/tutorials/pytorch.md).
//
// Thread-safety  any thread may call any method; on each level collectives start one at a time.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "tutti/group.hpp"

namespace tutti_torch {

class Levels {
 public:
  explicit Levels(std::shared_ptr<tutti::Group> group) { levels_.emplace_back(std::move(group)); }

  // The backend's own group; null after `close`.
  std::shared_ptr<tutti::Group> group();
  // Calls `function(group)` for the group of a depth, while nobody else starts there. The first call
  // for a depth makes its group, and blocks until the other ranks do the same.
  template <class Function>
  auto with_group(int depth, Function&& function) {
    const auto [level, own] = level_at(depth);
    std::scoped_lock lock(level.starting);
    return std::forward<Function>(function)(open(level, depth, own.get()));
  }

  void abort(const std::string& reason);
  // Leaves all groups in good order.
  void close();

 private:
  struct Level {
    explicit Level(std::shared_ptr<tutti::Group> made) : group(std::move(made)) {}
    std::mutex starting;
    std::shared_ptr<tutti::Group> group;
  };
  struct Place {
    Level& level;
    std::shared_ptr<tutti::Group> own;
  };
  Place level_at(int depth);
  tutti::Group& open(Level& level, int depth, tutti::Group* own);

  // Never taken with a level's lock in hand: that one may be held for as long as others take to come.
  std::mutex mutex_;
  std::deque<Level> levels_;
  std::atomic<bool> closed_{false};
};

}  // namespace tutti_torch
