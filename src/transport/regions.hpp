// transport/regions.hpp - symmetric memory as one rank sees it: its own, and what peers have handed
// over.
//
// Thread-safety  any thread may ask; changes come from the endpoint.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <shared_mutex>
#include <span>
#include <utility>

#include "transport/endpoint.hpp"
#include "transport/heap_arena.hpp"
#include "transport/mapping.hpp"

namespace tutti::transport {

class RegionTable {
 public:
  // A region of this rank, and the file by which other processes map it. Nobody keeps the file once
  // they have: the mappings hold the memory, and hundreds of groups no descriptors.
  struct NewRegion {
    MemoryRegion region;
    std::shared_ptr<const Descriptor> file;  // null unless `shared`
  };
  // Makes one. `shared`: other processes are going to map it.
  Result<NewRegion> allocate(std::uint64_t id, std::size_t bytes, bool shared);
  // The heap of this process is a region like others from now on, under kHeapRegion. `shared`: other
  // processes are going to map it.
  void add_heap(HeapArena& heap, bool shared);
  bool heap_is_mapped_by(std::span<const int> peers) const;
  // What lies in the heap is no longer lent, nor seen by processes that have it mapped. False: the kernel
  // refuses.
  bool withdraw(const void* data, std::size_t bytes);
  // Drops this rank's own region and everybody's of that id.
  void free(std::uint64_t id);

  // Nobody but this rank has a region of its own any more: contents stay, and what peers still write
  // there is lost. True if there was nobody else, too. False: there was no memory for it.
  bool unshare(std::uint64_t id);

  // A peer's region: mapped here, or the peer's own mapping when it is in this process. Null: it
  // has come, but this process cannot map it. False: no region may have this id, or one of this peer
  // has it already, and somebody may be using it.
  [[nodiscard]] bool add(int peer, std::uint64_t id, std::shared_ptr<Mapping> mapping);
  // A share in this rank's own mapping, for a peer in this process: whoever still reads or writes
  // it when its owner has gone finds memory there. Null: there is no such region.
  std::shared_ptr<Mapping> mapping(std::uint64_t id) const;
  bool has_come(int peer, std::uint64_t id) const;
  std::byte* reach(int peer, const MemoryRef& ref, std::size_t bytes) const;

  // The peer has mapped this rank's region: from now on it may be lent to it.
  void mark_mapped(int peer, std::uint64_t id);
  // Where `data` is in words that the peer understands; region 0 if it has not mapped it.
  MemoryRef share(int peer, const void* data, std::size_t bytes) const;
  // What every one of `peers` has mapped all around `data`; region 0: it has not.
  SharedStretch find(const void* data, std::size_t bytes, std::span<const int> peers) const;
  // Changes whenever an answer of `find` or `reach` may have.
  std::uint64_t version() const noexcept {
    const HeapArena* heap = heap_.load(std::memory_order_acquire);
    return version_.load(std::memory_order_acquire) + (heap == nullptr ? 0 : heap->version());
  }

 private:
  struct Own {
    std::shared_ptr<Mapping> mapping;
    std::set<int> mapped_by;
    bool has_file = false;  // other processes may have mapped it
    bool is_mapped_by(std::span<const int> peers) const;
  };

  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, Own> own_;
  std::map<std::pair<int, std::uint64_t>, std::shared_ptr<Mapping>> theirs_;
  std::atomic<HeapArena*> heap_{nullptr};  // of own_[kHeapRegion]
  std::atomic<std::uint64_t> version_{1};
  std::atomic<bool> lendable_{false};  // spares sends the lock while nobody has mapped anything
};

}  // namespace tutti::transport
