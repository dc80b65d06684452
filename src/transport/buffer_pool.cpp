#include "transport/buffer_pool.hpp"

#include <bit>
#include <mutex>

#include "core/check.hpp"

namespace tutti::transport {
namespace {

constexpr std::size_t kSmallest = 4096;
// Free memory beyond this goes back: fresh pages cost more than a copy, but not for ever.
constexpr std::size_t kKeptBytes = std::size_t{8} << 20;

std::size_t class_of(std::size_t bytes) {
  return bytes <= kSmallest ? 0 : std::bit_width((bytes - 1) / kSmallest);
}

}  // namespace

BufferPool::Buffer BufferPool::take(std::size_t bytes) {
  const std::size_t size_class = class_of(bytes);
  TUTTI_CHECK(size_class < kClasses);
  std::lock_guard lock(lock_);
  if (auto& kept = kept_[size_class]; !kept.empty()) {
    const std::size_t index = kept.back();
    kept.pop_back();
    kept_bytes_ -= kSmallest << size_class;
    return {entries_[index].memory.get(), index + 1};
  }
  if (empty_.empty()) {
    empty_.push_back(entries_.size());
    entries_.emplace_back();
  }
  const std::size_t index = empty_.back();
  empty_.pop_back();
  auto memory = std::make_unique_for_overwrite<std::byte[]>(kSmallest << size_class);
  entries_[index] = {std::move(memory), size_class};
  return {entries_[index].memory.get(), index + 1};
}

void BufferPool::release(std::uint64_t lease) {
  std::lock_guard lock(lock_);
  if (lease == 0 || lease > entries_.size()) return;
  const std::size_t index = lease - 1;
  Entry& entry = entries_[index];
  const std::size_t size = kSmallest << entry.size_class;
  if (kept_bytes_ + size <= kKeptBytes) {
    kept_bytes_ += size;
    kept_[entry.size_class].push_back(index);
    return;
  }
  entry.memory.reset();
  empty_.push_back(index);
}

}  // namespace tutti::transport
