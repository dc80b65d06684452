#include "transport/tcp/buffer_pool.hpp"

#include <mutex>

namespace tutti::transport {
namespace {

// Eager messages and control: worth keeping. Larger ones are rare, because their place is known.
constexpr std::size_t kKeptBytes = 16 * 1024;
constexpr std::size_t kKept = 64;

}  // namespace

BufferPool::Buffer BufferPool::take(std::size_t bytes) {
  const bool small = bytes <= kKeptBytes;
  std::lock_guard lock(lock_);
  std::size_t index = 0;
  if (small && !free_small_.empty()) {
    index = free_small_.back();
    free_small_.pop_back();
    return {entries_[index].memory.get(), index + 1};
  }
  if (free_entries_.empty()) {
    index = entries_.size();
    entries_.emplace_back();
  } else {
    index = free_entries_.back();
    free_entries_.pop_back();
  }
  const std::size_t size = small ? kKeptBytes : bytes;
  entries_[index] = {std::make_unique_for_overwrite<std::byte[]>(size), size};
  return {entries_[index].memory.get(), index + 1};
}

void BufferPool::release(std::uint64_t lease) {
  std::lock_guard lock(lock_);
  if (lease == 0 || lease > entries_.size()) return;
  const std::size_t index = lease - 1;
  if (entries_[index].bytes == kKeptBytes && free_small_.size() < kKept) {
    free_small_.push_back(index);
    return;
  }
  entries_[index] = {};
  free_entries_.push_back(index);
}

}  // namespace tutti::transport
