// tutti/shared_heap.hpp - ordinary memory at symmetric speed: a heap that the ranks of the host have mapped.
//
// One per process, in a memory file that every co-located rank maps when it joins a group with this one.
// Whatever is allocated from it is taken for symmetric memory by all collectives, wherever it lies and
// whatever the other ranks have there, without Group::allocate and without a word between ranks. Meant for
// blocks of 64 KiB and more: each takes whole pages. Opt-in; who never asks for it has none.
//
// When           before the groups that are to profit: a group maps the heaps that there are when it is made.
// Memory         pages are taken when a block first needs them, and kept for the next one when it is given
//                back, up to as much as is in use (256 MiB at least); what is beyond goes back to the system.
//                What is in a new block is what was left there.
// After a fork   the child has a copy of what is in the heap, and may read and write it; its blocks are
//                private memory, and giving back one of the parent's does nothing. Until the child has
//                written to a page it sees what the parent writes there later (docs/transports/shared_heap.md).
// After failure  the buffers of a collective that failed are taken out of the peers' reach before its
//                caller hears of it; they stay usable, as ordinary memory.
// Thread-safety  any thread, any method.
// Failure        Code::out_of_memory where the machine or the heap has no room. free() never fails.
//
//   auto heap = tutti::SharedHeap::of_process();
//   if (!heap.ok()) return heap.status();
//   auto group = tutti::Group::from_environment();
//   auto block = heap->allocate(4 * count);
//   if (!block.ok()) return block.status();
//   (*group)->all_reduce(tutti::Buffer::of(static_cast<float*>(*block), count), tutti::ReduceOp::sum);
//   heap->free(*block);
#pragma once

#include <cstddef>

#include "tutti/status.hpp"

namespace tutti {
namespace transport {
class HeapArena;
}
inline namespace [[gnu::visibility("default")]] v1 {

// A handle that may be copied; the heap itself lives as long as its process.
class SharedHeap {
 public:
  // From here on a block is worth its page-sized ends.
  static constexpr std::size_t kLeastBytes = 64 << 10;
  static constexpr std::size_t kAlignmentBytes = 4096;

  // Makes it at the first call, as large as TUTTI_SHARED_HEAP_BYTES says (else: as the memory that is
  // available now): that many addresses, and no memory yet. In a child of fork() the child's own.
  static Result<SharedHeap> of_process();

  // Zero bytes are a null pointer.
  Result<void*> allocate(std::size_t bytes) const;
  // What `allocate` gave, in this process or in the one that it was forked from; null is none.
  void free(void* block) const noexcept;
  // Whether it lies in the heap, or in the parent's. What a child of fork() allocates from the parent's
  // handle does not.
  bool contains(const void* data) const noexcept;
  // True in a child of fork(), where it gives private memory.
  bool is_of_parent() const noexcept;
  // Gives all memory back to the system that no block needs.
  void trim() const;

  // For reports; whole pages.
  struct Usage {
    std::size_t limit_bytes = 0;   // the most that there can be in use
    std::size_t in_use_bytes = 0;  // by blocks
    std::size_t kept_bytes = 0;    // that no block needs, and that the next one gets
    std::size_t peak_bytes = 0;    // the most that was in use
  };
  Usage usage() const;

 private:
  explicit SharedHeap(transport::HeapArena& arena) : arena_(&arena) {}
  transport::HeapArena* arena_;
};

}  // namespace v1
}  // namespace tutti
