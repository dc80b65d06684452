#include "transport/regions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "transport/window.hpp"

namespace tutti::transport {

namespace {

// Two numbers mean something else (window.hpp), and one is the heap's.
bool may_be_id(std::uint64_t id) { return id != kArenaRegion && id != kDirectRegion; }

}  // namespace

bool RegionTable::Own::is_mapped_by(std::span<const int> peers) const {
  return std::all_of(peers.begin(), peers.end(),
                     [&](int peer) { return mapped_by.count(peer) != 0; });
}

Result<RegionTable::NewRegion> RegionTable::allocate(std::uint64_t id, std::size_t bytes,
                                                     bool shared) {
  if (!may_be_id(id) || id == kHeapRegion || bytes == 0)
    return Status(Code::invalid_argument,
                  fmt::format("symmetric memory {} of {} bytes: neither may be zero", id, bytes));
  if (Status status = check_room(bytes); !status.ok()) return status;
  Own own;
  NewRegion made;
  if (shared) {
    auto file = make_shared_memory("tutti-region", bytes);
    if (!file.ok()) return file.status();
    made.file = std::make_shared<const Descriptor>(std::move(*file));
  }
  auto mapping =
      shared ? Mapping::shared(made.file->get(), bytes, true) : Mapping::anonymous(bytes);
  if (!mapping.ok()) return mapping.status();
  own.mapping = std::make_shared<Mapping>(std::move(*mapping));
  // The owner touches first: the pages come from its own NUMA node.
  std::memset(own.mapping->data(), 0, bytes);

  own.has_file = shared;
  made.region = {id, own.mapping->data(), bytes};
  std::unique_lock lock(mutex_);
  if (!own_.emplace(id, std::move(own)).second)
    return Status(Code::invalid_argument, fmt::format("symmetric memory {} exists already", id));
  return made;
}

void RegionTable::add_heap(HeapArena& heap, bool shared) {
  std::unique_lock lock(mutex_);
  Own& own = own_[kHeapRegion];
  own.mapping = heap.mapping();
  own.has_file = own.has_file || shared;
  heap_.store(&heap, std::memory_order_release);
}

bool RegionTable::heap_is_mapped_by(std::span<const int> peers) const {
  std::shared_lock lock(mutex_);
  const auto heap = own_.find(kHeapRegion);
  return heap != own_.end() && heap->second.is_mapped_by(peers);
}

bool RegionTable::withdraw(const void* data, std::size_t bytes) {
  HeapArena* heap = heap_.load(std::memory_order_acquire);
  if (heap == nullptr) return true;
  {
    std::shared_lock lock(mutex_);
    if (!own_.at(kHeapRegion).has_file) return true;  // threads have no memory of their own
  }
  return heap->withdraw(data, bytes);
}

void RegionTable::free(std::uint64_t id) {
  std::unique_lock lock(mutex_);
  version_.fetch_add(1, std::memory_order_acq_rel);
  own_.erase(id);
  for (auto it = theirs_.begin(); it != theirs_.end();)
    it = it->first.second == id ? theirs_.erase(it) : std::next(it);
}

bool RegionTable::unshare(std::uint64_t id) {
  std::unique_lock lock(mutex_);
  const auto found = own_.find(id);
  if (found == own_.end() || !found->second.has_file) return true;
  version_.fetch_add(1, std::memory_order_acq_rel);
  found->second.mapped_by.clear();
  found->second.has_file = !found->second.mapping->make_private();
  return !found->second.has_file;
}

bool RegionTable::add(int peer, std::uint64_t id, std::shared_ptr<Mapping> mapping) {
  if (!may_be_id(id)) return false;
  std::unique_lock lock(mutex_);
  version_.fetch_add(1, std::memory_order_acq_rel);
  return theirs_.try_emplace({peer, id}, std::move(mapping)).second;
}

std::shared_ptr<Mapping> RegionTable::mapping(std::uint64_t id) const {
  std::shared_lock lock(mutex_);
  const auto found = own_.find(id);
  return found == own_.end() ? nullptr : found->second.mapping;
}

bool RegionTable::has_come(int peer, std::uint64_t id) const {
  std::shared_lock lock(mutex_);
  return theirs_.count({peer, id}) != 0;
}

std::byte* RegionTable::reach(int peer, const MemoryRef& ref, std::size_t bytes) const {
  std::shared_lock lock(mutex_);
  const auto found = theirs_.find({peer, ref.region});
  if (found == theirs_.end() || !found->second) return nullptr;
  const Mapping& region = *found->second;
  if (bytes > region.bytes() || ref.offset > region.bytes() - bytes) return nullptr;
  return region.data() + ref.offset;
}

void RegionTable::mark_mapped(int peer, std::uint64_t id) {
  std::unique_lock lock(mutex_);
  const auto found = own_.find(id);
  if (found == own_.end()) return;  // freed in the meantime
  found->second.mapped_by.insert(peer);
  version_.fetch_add(1, std::memory_order_acq_rel);
  lendable_.store(true, std::memory_order_release);
}

MemoryRef RegionTable::share(int peer, const void* data, std::size_t bytes) const {
  const SharedStretch found = find(data, bytes, {&peer, 1});
  if (found.ref.region == 0) return {};
  const auto offset = static_cast<const std::byte*>(data) - found.data;
  return {found.ref.region, found.ref.offset + static_cast<std::uint64_t>(offset)};
}

SharedStretch RegionTable::find(const void* data, std::size_t bytes,
                                std::span<const int> peers) const {
  if (!lendable_.load(std::memory_order_acquire)) return {};
  std::shared_lock lock(mutex_);
  for (const auto& [id, own] : own_) {
    if (!own.mapping->contains(data, bytes)) continue;
    if (!own.is_mapped_by(peers)) return {};
    if (id != kHeapRegion) return {{id, 0}, own.mapping->data(), own.mapping->bytes()};
    const Extent within = heap_.load(std::memory_order_acquire)->in_reach(data, bytes);
    if (within.length() == 0) return {};
    return {{id, within.begin}, own.mapping->data() + within.begin, within.length()};
  }
  return {};
}

}  // namespace tutti::transport
