#include "tutti/symmetric_pool.hpp"

#include <fmt/format.h>

#include <limits>
#include <mutex>
#include <string>

#include "core/exhausted.hpp"
#include "core/free_stretches.hpp"
#include "core/process_hooks.hpp"

namespace tutti {
inline namespace v1 {

// What the handles of a pool and its pieces share; the last of them lets the memory go.
class SymmetricPool::State : public std::enable_shared_from_this<SymmetricPool::State> {
 public:
  State(const std::shared_ptr<Group>& group, SymmetricMemory memory)
      : group_(group),
        group_name_(group->name()),
        memory_(std::move(memory)),
        stretches_(memory_.bytes, kAlignmentBytes) {}

  Result<SymmetricMemory> take(std::size_t bytes) {
    if (Status status = check_group(); !status.ok()) return status;
    if (bytes == 0) return SymmetricMemory{};
    std::optional<std::size_t> offset;
    {
      std::scoped_lock lock(mutex_);
      offset = stretches_.take(bytes);
    }
    if (!offset) return no_room(bytes);
    void* data = static_cast<std::byte*>(memory_.data) + *offset;
    const auto give_back = [pool = shared_from_this(), at = *offset](void*) {
      std::scoped_lock lock(pool->mutex_);
      pool->stretches_.give_back(at);
    };
    return SymmetricMemory{data, bytes, std::shared_ptr<void>(data, give_back)};
  }

  // What `ask` says of the stretches.
  template <class Ask>
  std::size_t ask(const Ask& ask) const {
    std::scoped_lock lock(mutex_);
    return ask(stretches_);
  }

 private:
  Status check_group() const {
    if (fork_guard_.crossed())
      return {Code::unsupported,
              fmt::format("a pool of group '{}' belongs to the parent process", group_name_)};
    const std::shared_ptr<Group> group = group_.lock();
    if (!group)
      return {Code::aborted,
              fmt::format("group '{}', whose memory this pool is, was destroyed", group_name_)};
    return group->health().annotate("taking a piece of a pool");
  }

  Status no_room(std::size_t bytes) const {
    std::scoped_lock lock(mutex_);
    return {Code::out_of_memory,
            fmt::format(
                "a pool of group '{}' has no piece of {} bytes: {} of its {} are free, at most {} "
                "in one piece; give pieces back, or make the pool larger",
                group_name_, bytes, stretches_.bytes_free(), stretches_.bytes(),
                stretches_.largest_free())};
  }

  std::weak_ptr<Group> group_;  // a piece that is kept somewhere keeps no rank in the group
  std::string group_name_;
  SymmetricMemory memory_;
  ForkGuard fork_guard_;
  mutable std::mutex mutex_;
  FreeStretches stretches_;
};

Result<SymmetricPool> SymmetricPool::create(const std::shared_ptr<Group>& group, std::size_t bytes,
                                            Device device) {
  if (!group) return Status(Code::invalid_argument, "a pool cannot be created without a group");
  if (bytes > std::numeric_limits<std::size_t>::max() - kAlignmentBytes)
    return Status(Code::invalid_argument, fmt::format("a pool of {} bytes cannot be", bytes));
  const std::size_t whole = (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  auto memory = group->allocate(whole, device);
  if (!memory.ok()) return memory.status().annotate("making a pool");
  return or_exhausted([&]() -> Result<SymmetricPool> {
    return SymmetricPool(std::make_shared<State>(group, *std::move(memory)));
  });
}

Result<SymmetricMemory> SymmetricPool::take(std::size_t bytes) const {
  if (!state_) return Status(Code::invalid_argument, "a pool that was not created has no pieces");
  return or_exhausted([&] { return state_->take(bytes); });
}

std::size_t SymmetricPool::bytes() const {
  return state_ ? state_->ask([](const auto& all) { return all.bytes(); }) : 0;
}
std::size_t SymmetricPool::bytes_free() const {
  return state_ ? state_->ask([](const auto& all) { return all.bytes_free(); }) : 0;
}
std::size_t SymmetricPool::largest_free() const {
  return state_ ? state_->ask([](const auto& all) { return all.largest_free(); }) : 0;
}
std::size_t SymmetricPool::peak_bytes() const {
  return state_ ? state_->ask([](const auto& all) { return all.peak_bytes(); }) : 0;
}

}  // namespace v1
}  // namespace tutti
