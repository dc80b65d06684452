#include "tutti/shared_heap.hpp"

#include <atomic>

#include "core/exhausted.hpp"
#include "core/limits.hpp"
#include "transport/heap_arena.hpp"
#include "tutti/config.hpp"

namespace tutti {
namespace {

// Never destroyed: blocks may be given back until the process is over, and peers' groups with it. A child
// of fork() leaves its parent's be.
std::atomic<transport::HeapArena*> g_arena{nullptr};

// As much as a process could come to use, if nobody has said.
constexpr std::size_t kWhereMemoryIsUnknown = std::size_t{64} << 30;

Result<std::size_t> limit_bytes() {
  auto config = Config::from_environment();
  if (!config.ok()) return config.status();
  if (config->shared_heap_bytes > 0) return config->shared_heap_bytes;
  const std::uint64_t available = available_memory_bytes();
  return available == kNoLimit ? kWhereMemoryIsUnknown : static_cast<std::size_t>(available);
}

}  // namespace

transport::HeapArena* transport::HeapArena::of_process() noexcept {
  HeapArena* arena = g_arena.load(std::memory_order_acquire);
  return arena != nullptr && !arena->is_of_parent() ? arena : nullptr;
}

inline namespace v1 {

Result<SharedHeap> SharedHeap::of_process() {
  using transport::HeapArena;
  return or_exhausted([&]() -> Result<SharedHeap> {
    HeapArena* before = g_arena.load();
    if (HeapArena* made = HeapArena::of_process()) return SharedHeap(*made);
    auto limit = limit_bytes();
    if (!limit.ok()) return limit.status();
    auto arena = HeapArena::create({.bytes = *limit}, before);
    if (!arena.ok()) return arena.status();
    // Another thread may have been quicker.
    if (g_arena.compare_exchange_strong(before, arena->get())) return SharedHeap(*arena->release());
    return SharedHeap(*before);
  });
}

Result<void*> SharedHeap::allocate(std::size_t bytes) const {
  return or_exhausted([&] { return arena_->allocate(bytes); });
}
void SharedHeap::free(void* block) const noexcept { arena_->free(block); }
bool SharedHeap::contains(const void* data) const noexcept { return arena_->contains(data); }
bool SharedHeap::is_of_parent() const noexcept { return arena_->is_of_parent(); }
void SharedHeap::trim() const { arena_->trim(); }
SharedHeap::Usage SharedHeap::usage() const { return arena_->usage(); }

}  // namespace v1
}  // namespace tutti
