// transport/window.hpp - the memory of one rank that all ranks beside it can read.
//
// A rank writes only its own window and reads those of the others: every word in it has one writer.
// What it wants to say to peer p lies in its lane for p; docs/formats/window.md has the layout.
//
//   page 0          header · doorbell · departed · pulse
//   lane of peer 0  consumed · wants_room · loan generations · ring of 64 slots
//   lane of peer 1  …
//   arena of peer 0 small blocks · large blocks      (payloads that had to be copied)
//
// Thread-safety  the words are atomics; who may write them is said at each.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "transport/doorbell.hpp"
#include "transport/link.hpp"
#include "transport/mapping.hpp"

namespace tutti::transport {

inline constexpr std::uint64_t kWindowMagic = 0x776f646e69575474;  // "tTWindow"
inline constexpr std::uint32_t kWindowVersion = 2;
// Two 64-byte lines: neighbours are prefetched in pairs, so counters stay that far apart.
inline constexpr std::size_t kLine = 128;

inline constexpr std::size_t kSlots = 64;
inline constexpr std::size_t kLoans = 512;  // payloads of a lane that are lent at the same time
inline constexpr std::size_t kSmallBlocks = 32;
inline constexpr std::size_t kSmallBytes = 4096;  // a control message fits
inline constexpr std::size_t kMaxLargeBlocks = 4;
static_assert(kSmallBytes >= kMaxControlBytes);

// Published by storing `sequence` (slot number + 1) last. Payloads above kInlineBytes leave a
// Descriptor in `payload` instead.
struct alignas(kLine) Slot {
  std::atomic<std::uint64_t> sequence;
  Header header;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(Slot) == kLine);

// Where a payload lies. `lease` names the loan: release sends it back.
struct LoanNote {
  std::uint64_t region = 0;
  std::uint64_t offset = 0;
  std::uint64_t lease = 0;
};
inline constexpr std::uint64_t kArenaRegion = 0;  // offset into the sender's window
inline constexpr std::uint64_t kDirectRegion = ~std::uint64_t{0};  // the address itself: inproc
inline constexpr std::uint64_t kHeapRegion = kDirectRegion - 1;    // the shared heap of a process

// All written by the window's owner.
struct PairLane {
  // Slots of the peer's ring that the owner has taken.
  alignas(kLine) std::atomic<std::uint64_t> consumed;
  // 1: the owner waits for the peer to take some of its own.
  alignas(kLine) std::atomic<std::uint32_t> wants_room;
  // A loan's number of uses; changes when it ends or is revoked.
  alignas(kLine) std::atomic<std::uint32_t> generations[kLoans];
  Slot slots[kSlots];
};

struct WindowHead {
  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::int32_t rank = 0;
  std::uint32_t lanes = 0;
  std::uint32_t large_blocks = 0;
  std::uint64_t large_bytes = 0;
  std::uint64_t bytes = 0;
  std::int64_t pid = 0;
  alignas(kLine) Doorbell doorbell;
  alignas(kLine) std::atomic<std::uint32_t> departed;  // 1: the owner has left in good order
  alignas(kLine) std::atomic<std::uint64_t> pulse;     // goes on while the owner's process runs
};

// What both sides compute from the same facts.
struct WindowShape {
  std::uint32_t lanes = 0;  // ranks beside each other
  std::uint32_t large_blocks = 0;
  std::uint64_t large_bytes = 0;

  static WindowShape of(int lanes, std::size_t segment_bytes);
  std::size_t lane_offset(int lane) const;
  std::size_t block_offset(int lane, std::size_t block) const;
  std::size_t block_bytes(std::size_t block) const;
  std::size_t blocks() const { return kSmallBlocks + large_blocks; }
  std::size_t bytes() const;
};

class Window {
 public:
  // This rank's own. `shared`: other processes are going to map it.
  static Result<std::shared_ptr<Window>> create(int rank, const WindowShape& shape, bool shared);
  // One that was created in this process, by its number; null once its owner is rid of it.
  static std::shared_ptr<Window> created_here(std::uint64_t number);
  // A peer's, from its descriptors; read-only. Code::corrupt or mismatch if it is not one of ours,
  // with `lanes` lanes.
  static Result<std::shared_ptr<Window>> attach(Descriptor memory, Descriptor bell,
                                                std::size_t bytes, int rank, std::uint32_t lanes);
  Window(Mapping mapping, Descriptor memory, Descriptor bell);

  WindowHead& head() const { return *reinterpret_cast<WindowHead*>(mapping_.data()); }
  PairLane& lane(int lane) const {
    return *reinterpret_cast<PairLane*>(mapping_.data() + shape_.lane_offset(lane));
  }
  std::byte* block(int lane, std::size_t block) const {
    return mapping_.data() + shape_.block_offset(lane, block);
  }
  std::byte* at(std::uint64_t offset) const { return mapping_.data() + offset; }
  const WindowShape& shape() const { return shape_; }
  std::size_t bytes() const { return mapping_.bytes(); }
  int memory() const { return memory_.get(); }
  int bell() const { return bell_.get(); }
  std::uint64_t number() const { return number_; }  // 0: attached

  // Wakes the owner out of its sleep.
  void ring() const noexcept;

 private:
  Mapping mapping_;
  Descriptor memory_;  // empty: not shared with other processes
  Descriptor bell_;    // eventfd on which the owner sleeps
  WindowShape shape_;
  std::uint64_t number_ = 0;
};

}  // namespace tutti::transport
