// engine/layout.hpp - where the chunks of a program lie for one launch.
//
// The message (or each rank's block of it) is cut into `cut` parts; all ranks cut alike, because a
// part's size depends only on what they agreed on. Cuts fall on multiples of 64 bytes from the
// start where there is enough to cut, so that neighbours do not share cache lines.
//
// An extent has the bytes of what is folded. Where a call widens, chunks of the output hold as many
// elements in more bytes, and so does scratch that is copied there as it is (schedule::stage).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/launch.hpp"
#include "engine/scattered.hpp"
#include "schedule/schedule.hpp"

namespace tutti::engine {

// First byte of part `part` when `bytes` bytes of whole elements are cut into `parts`;
// part = parts gives `bytes`.
std::size_t cut_at(std::size_t bytes, std::size_t element, std::uint32_t parts, std::uint32_t part);

class ChunkLayout {
 public:
  // Gives memory of that size for scratch; it is asked again only for more.
  using ScratchMemory = std::function<std::byte*(std::size_t bytes)>;
  void take_scratch_from(ScratchMemory memory) { scratch_memory_ = std::move(memory); }

  // Both must outlive the layout. Scratch is taken from memory that is kept from launch to launch.
  void reset(const schedule::Program& program, const Launch& launch);

  std::size_t extent_bytes(std::uint64_t extent) const;
  // Of a chunk's memory; and for each byte of its extent.
  std::size_t chunk_bytes(schedule::Space space, std::uint32_t chunk) const;
  std::size_t growth_of(schedule::Space space, std::uint32_t chunk) const;
  // Adds the memory of a chunk to `found`.
  void append(schedule::Space space, std::uint32_t chunk, Scattered& found) const;
  // Where a chunk begins in a side that is one contiguous buffer; used to find it in a peer's.
  std::size_t offset_of(schedule::Space space, std::uint32_t chunk) const;

 private:
  bool has_blocks(schedule::Space space) const;
  std::size_t block_size(std::uint64_t block) const;
  std::size_t pair_size(std::uint64_t from, std::uint64_t to) const;
  std::size_t message_bytes() const;
  void find_results();
  static void append_range(const std::vector<Piece>& pieces, std::size_t begin, std::size_t end,
                           Scattered& found);

  const schedule::Program* program_ = nullptr;
  const Launch* launch_ = nullptr;
  std::size_t element_ = 1;
  std::size_t growth_ = 1;
  std::vector<std::size_t> scratch_at_;  // offset of each scratch chunk
  std::vector<bool> holds_result_;       // of scratch chunks, where the call widens
  ScratchMemory scratch_memory_;
  std::vector<std::byte> own_scratch_;  // unless it is taken from elsewhere
  std::byte* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace tutti::engine
