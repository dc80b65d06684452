#include "transport/heap_arena.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "core/check.hpp"
#include "core/exhausted.hpp"

namespace tutti::transport {
namespace {

constexpr std::size_t kHeapPage = 4096;
// What asks the system whether there is room, which takes longer than to take fewer pages.
constexpr std::size_t kLookForRoomFrom = 1 << 20;

constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + kHeapPage - 1) / kHeapPage * kHeapPage;
}
constexpr std::size_t round_down(std::size_t bytes) { return bytes / kHeapPage * kHeapPage; }

// Of a child of fork(), which has no part in the heap.
Result<void*> allocate_privately(std::size_t bytes) {
  void* data = std::aligned_alloc(SharedHeap::kAlignmentBytes, round_up(bytes));
  if (data != nullptr) return data;
  return Status(Code::out_of_memory, fmt::format("no room for {} bytes of memory", bytes));
}

}  // namespace

Result<std::unique_ptr<HeapArena>> HeapArena::create(const Limits& limits,
                                                     const HeapArena* parent) {
  Limits whole = limits;
  whole.bytes = round_up(limits.bytes);
  auto file = make_sparse_memory("tutti-heap", whole.bytes);
  if (!file.ok()) return file.status().annotate("making a shared heap");
  auto mapping = Mapping::shared(file->get(), whole.bytes, true);
  if (!mapping.ok())
    return mapping.status().annotate(
        fmt::format("making a shared heap of {} bytes (TUTTI_SHARED_HEAP_BYTES)", whole.bytes));
  std::unique_ptr<HeapArena> arena(new HeapArena(
      whole, std::make_shared<const Descriptor>(std::move(*file)), std::move(*mapping), parent));
  if (!arena->fork_hook_.registered())
    return Status(Code::unsupported, "a shared heap cannot be made: nobody would tell it of forks");
  return arena;
}

HeapArena::HeapArena(const Limits& limits, std::shared_ptr<const Descriptor> file, Mapping mapping,
                     const HeapArena* parent)
    : limits_(limits),
      parent_(parent),
      file_(std::move(file)),
      mapping_(std::make_shared<Mapping>(std::move(mapping))),
      stretches_(limits.bytes, kHeapPage) {
  hollow_.add({0, limits.bytes});
  fork_hook_ = Hook::on_fork(&HeapArena::on_fork, this);
}

Result<void*> HeapArena::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (is_of_parent()) return allocate_privately(bytes);
  std::optional<std::size_t> offset;
  {
    std::scoped_lock lock(mutex_);
    offset = stretches_.take(bytes);
    if (!offset)
      return Status(
          Code::out_of_memory,
          fmt::format("the shared heap has no room for {} bytes: {} of its {} are free, at "
                      "most {} in one piece; raise TUTTI_SHARED_HEAP_BYTES",
                      bytes, stretches_.bytes_free(), stretches_.bytes(),
                      stretches_.largest_free()));
  }
  const Extent block{*offset, *offset + round_up(bytes)};
  for (std::size_t end = used_end_.load(); end < block.end;)
    if (used_end_.compare_exchange_weak(end, block.end)) break;
  Status status = or_exhausted([&] { return take_hollow(block); });
  if (status.ok()) return mapping_->data() + block.begin;
  std::scoped_lock lock(mutex_);
  stretches_.give_back(block.begin);
  return status;
}

// Without the lock: the block is ours, and pages take their time.
Status HeapArena::take_hollow(Extent block) {
  std::vector<Extent> parts;
  {
    std::scoped_lock lock(mutex_);
    parts = hollow_.remove(block);
  }
  Status status;
  for (const Extent& part : parts) {
    if (part.length() >= kLookForRoomFrom) status = check_room(part.length());
    if (status.ok()) status = take_pages(file_->get(), part.begin, part.length());
    if (!status.ok()) break;
  }
  if (status.ok()) return status;
  std::scoped_lock lock(mutex_);
  for (const Extent& part : parts) hollow_.add(part);  // also what has pages: it gets them again
  return status;
}

bool HeapArena::contains(const void* data) const noexcept {
  return mapping_->contains(data, 1) || (parent_ != nullptr && parent_->contains(data));
}

void HeapArena::free(void* block) noexcept {
  if (block == nullptr) return;
  if (!contains(block)) return std::free(block);  // of a child of fork()
  // The parent's.
  if (is_of_parent() || !mapping_->contains(block, 1)) return;
  std::scoped_lock lock(mutex_);
  const std::size_t offset = offset_of(block);
  const auto piece = stretches_.piece_around(offset);
  TUTTI_CHECK(piece && piece->offset == offset);
  const Extent range{offset, offset + piece->bytes};
  if (is_withdrawn(range)) {
    // Neither its pages nor its own copies are needed any more.
    ::madvise(block, range.length(), MADV_DONTNEED);
    ::fallocate(file_->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(offset), static_cast<off_t>(range.length()));
    retired_bytes_ += range.length();
    return;
  }
  stretches_.give_back(offset);
  const std::size_t in_use = stretches_.bytes() - stretches_.bytes_free() - retired_bytes_;
  const std::size_t allowed = std::max(limits_.kept_bytes, in_use);
  // To the half, so that not every block pays for it.
  if (kept_bytes() > allowed) keep_at_most(allowed / 2);
}

void HeapArena::trim() {
  if (is_of_parent()) return;
  std::scoped_lock lock(mutex_);
  keep_at_most(0);
}

std::size_t HeapArena::kept_bytes() const {
  // Blocks whose pages are still being taken count as neither.
  const std::size_t with_pages = stretches_.bytes() - hollow_.length();
  const std::size_t taken = stretches_.bytes() - stretches_.bytes_free();
  return with_pages > taken ? with_pages - taken : 0;
}

// Where there is no memory to note it in, it stays.
void HeapArena::keep_at_most(std::size_t bytes) {
  (void)or_exhausted([&] {
    stretches_.each_free([&](const FreeStretches::Stretch& stretch) {
      if (kept_bytes() <= bytes) return false;
      hollow_out({stretch.offset, stretch.offset + stretch.bytes});
      return true;
    });
    return Status();
  });
}

void HeapArena::hollow_out(Extent stretch) {
  for (const Extent& part : hollow_.missing(stretch)) {
    if (::madvise(mapping_->data() + part.begin, part.length(), MADV_REMOVE) != 0) continue;
    hollow_.add(part);
  }
}

SharedHeap::Usage HeapArena::usage() const {
  if (is_of_parent()) return {.limit_bytes = limits_.bytes};
  std::scoped_lock lock(mutex_);
  return {.limit_bytes = stretches_.bytes() - retired_bytes_,
          .in_use_bytes = stretches_.bytes() - stretches_.bytes_free() - retired_bytes_,
          .kept_bytes = kept_bytes(),
          .peak_bytes = stretches_.peak_bytes()};
}

// ---- what peers see no more

template <class Visit>
void HeapArena::each_shared(Extent range, const Visit& visit) const noexcept {
  const std::size_t count = withdrawn_.load(std::memory_order_acquire);
  while (range.begin < range.end) {
    Extent next{range.end, range.end};
    for (std::size_t i = 0; i < count; ++i) {
      const Extent& gone = withdrawals_[i];
      if (gone.end > range.begin && gone.begin < next.begin) next = gone;
    }
    const std::size_t end = std::min(range.end, std::max(next.begin, range.begin));
    if (range.begin < end) visit(Extent{range.begin, end});
    range.begin = std::max(next.end, end);
  }
}

bool HeapArena::is_withdrawn(Extent block) const noexcept {
  std::size_t shared = 0;
  each_shared(block, [&](Extent part) { shared += part.length(); });
  return shared < block.length();
}

bool HeapArena::withdraw(const void* data, std::size_t bytes) noexcept {
  if (is_of_parent() || !mapping_->contains(data, bytes)) return true;
  std::scoped_lock lock(mutex_);
  Extent range{round_up(offset_of(data)), offset_of(data) + bytes};
  const auto piece = stretches_.piece_around(offset_of(data));
  const bool is_last = piece && round_up(range.end) == piece->offset + piece->bytes;
  range.end = is_last ? round_up(range.end) : round_down(range.end);
  if (range.begin >= range.end) return true;
  bool all = true;
  each_shared(range, [&](Extent part) {
    const std::size_t count = withdrawn_.load(std::memory_order_relaxed);
    if (count == kMostWithdrawn ||
        !mapping_->copy_on_write(file_->get(), part.begin, part.length())) {
      all = false;
      return;
    }
    withdrawals_[count] = part;
    withdrawn_.store(count + 1, std::memory_order_release);
    // A write of what is there already gives each page a copy of its own.
    for (std::size_t at = part.begin; at < part.end; at += kHeapPage)
      std::atomic_ref(*reinterpret_cast<unsigned char*>(mapping_->data() + at)).fetch_or(0);
  });
  return all;
}

Extent HeapArena::in_reach(const void* data, std::size_t bytes) const noexcept {
  const Extent wanted{offset_of(data), offset_of(data) + bytes};
  Extent found{0, limits_.bytes};
  const std::size_t count = withdrawn_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    const Extent& gone = withdrawals_[i];
    if (gone.begin < wanted.end && wanted.begin < gone.end) return {};
    if (gone.end <= wanted.begin) found.begin = std::max(found.begin, gone.end);
    if (gone.begin >= wanted.end) found.end = std::min(found.end, gone.begin);
  }
  return found;
}

// ---- fork

void HeapArena::on_fork(void* context) noexcept {
  auto* arena = static_cast<HeapArena*>(context);
  const int file = arena->file_->get();
  // What was withdrawn is private already.
  arena->each_shared({0, arena->used_end_.load()}, [&](Extent part) {
    if (arena->mapping_->copy_on_write(file, part.begin, part.length())) return;
    // Better a child that ends when it writes than a parent with other data.
    ::mprotect(arena->mapping_->data() + part.begin, part.length(), PROT_READ);
  });
}

}  // namespace tutti::transport
