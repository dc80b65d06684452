#include "levels.hpp"

#include <numeric>
#include <vector>

#include "errors.hpp"
#include "gpu_use.hpp"

namespace tutti_torch {
namespace {

// By a list of all ranks rather than a split: ranks find each other by the tag, whatever else they
// have under way on the parent just then.
std::shared_ptr<tutti::Group> duplicate_of(tutti::Group& parent, int depth) {
  std::vector<int> everybody(static_cast<std::size_t>(parent.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  std::string name = parent.name();
  for (int step = 0; step < depth; ++step) name += "/then";
  return take(parent.subgroup(everybody, static_cast<std::uint32_t>(depth), {std::move(name)}));
}

}  // namespace

std::shared_ptr<tutti::Group> Levels::group() {
  std::scoped_lock lock(mutex_);
  return levels_.front().group;
}

Levels::Place Levels::level_at(int depth) {
  std::scoped_lock lock(mutex_);
  while (static_cast<int>(levels_.size()) <= depth) levels_.emplace_back(nullptr);
  return {levels_[static_cast<std::size_t>(depth)], levels_.front().group};
}

tutti::Group& Levels::open(Level& level, int depth, tutti::Group* own) {
  if (closed_ || own == nullptr)
    throw Failure(tutti::Status(tutti::Code::aborted, "the process group was shut down"));
  if (!level.group) level.group = duplicate_of(*own, depth);
  return *level.group;
}

void Levels::abort(const std::string& reason) {
  std::scoped_lock lock(mutex_);
  // Its own group first: whoever holds another level waits there.
  if (levels_.front().group) levels_.front().group->abort(reason);
  for (Level& level : levels_) {
    std::scoped_lock starting(level.starting);
    if (level.group) level.group->abort(reason);
  }
}

void Levels::close() {
  std::scoped_lock lock(mutex_);
  closed_ = true;
  const std::shared_ptr<tutti::Group> own = levels_.front().group;
  for (Level& level : levels_) {
    std::unique_lock starting(level.starting, std::try_to_lock);
    if (!starting && own) own->abort("it was left while something was started on it");
    if (!starting) starting.lock();
    const std::shared_ptr<tutti::Group> left = std::exchange(level.group, nullptr);
    starting.unlock();
    if (left) note_end(*left);
  }
}

}  // namespace tutti_torch
