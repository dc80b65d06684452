// transport/heap_arena.hpp - the memory of a process's shared heap: a sparse file, and who has which part.
//
//   file     blocks … │ kept: pages, free │ hollow: no pages │ …          everything else is private memory
//
// A block is a stretch of whole pages. Pages are taken when a block is cut out of hollow stretches, and
// punched out again (MADV_REMOVE) when more is kept than allowed, the largest stretches first.
// Peers have all of it mapped and write only where a collective says. A block whose collective failed is
// withdrawn: this process sees its own copy from then on, and when it is given back nobody gets it again, for
// a late peer may still write into the file below.
//
// Fork           the child's first act is to map what was ever in use copy-on-write. It takes no lock: a
//                thread of the parent may have held it.
// Thread-safety  any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "core/extents.hpp"
#include "core/free_stretches.hpp"
#include "core/process_hooks.hpp"
#include "transport/mapping.hpp"
#include "tutti/shared_heap.hpp"

namespace tutti::transport {

class HeapArena {
 public:
  struct Limits {
    std::size_t bytes = 0;               // of addresses; rounded up to pages
    std::size_t kept_bytes = 256 << 20;  // without pages in use; with more in use as much as that
  };
  // `parent`: of the process that this one was forked from, and that lives on; null: none.
  static Result<std::unique_ptr<HeapArena>> create(const Limits& limits,
                                                   const HeapArena* parent = nullptr);
  // The one of this process; null: there is none, and in a child of fork() until it has made its own.
  static HeapArena* of_process() noexcept;

  Result<void*> allocate(std::size_t bytes);
  void free(void* block) noexcept;
  // In this one, or in one of its parents.
  bool contains(const void* data) const noexcept;
  bool is_of_parent() const noexcept { return fork_guard_.crossed(); }
  void trim();
  SharedHeap::Usage usage() const;

  // What peers are handed.
  const std::shared_ptr<Mapping>& mapping() const { return mapping_; }
  const std::shared_ptr<const Descriptor>& file() const { return file_; }

  // Whoever else has the file mapped writes no more into what this process sees there: of [data, data +
  // bytes) the whole pages, and the page behind its end if the block ends there. False: the kernel refuses.
  bool withdraw(const void* data, std::size_t bytes) noexcept;
  // All around `data` that peers see as this process does; empty if that is not all of it.
  Extent in_reach(const void* data, std::size_t bytes) const noexcept;
  // Grows with every withdrawal.
  std::uint64_t version() const noexcept { return withdrawn_.load(std::memory_order_acquire); }

 private:
  HeapArena(const Limits& limits, std::shared_ptr<const Descriptor> file, Mapping mapping,
            const HeapArena* parent);
  std::size_t offset_of(const void* data) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(data) - mapping_->data());
  }
  Status take_hollow(Extent block);
  std::size_t kept_bytes() const;
  void keep_at_most(std::size_t bytes);
  void hollow_out(Extent stretch);
  bool is_withdrawn(Extent block) const noexcept;
  template <class Visit>
  void each_shared(Extent range, const Visit& visit) const noexcept;
  static void on_fork(void* arena) noexcept;

  // Of a process's life; a table, because a child of fork() reads it without a lock.
  static constexpr std::size_t kMostWithdrawn = 1024;

  Limits limits_;
  const HeapArena* parent_;
  std::shared_ptr<const Descriptor> file_;
  std::shared_ptr<Mapping> mapping_;
  ForkGuard fork_guard_;
  std::atomic<std::size_t> used_end_{0};  // nothing behind it was ever in use
  std::atomic<std::size_t> withdrawn_{0};
  std::array<Extent, kMostWithdrawn> withdrawals_;  // never the same page twice

  mutable std::mutex mutex_;  // of the rest
  FreeStretches stretches_;
  Extents hollow_;
  std::size_t retired_bytes_ = 0;  // of blocks that nobody gets again
  Hook fork_hook_;                 // last: it goes first
};

}  // namespace tutti::transport
