// engine/device_plan.hpp - what a rank does in a collective on device memory, read off the host form.
//
// A host form for mapped memory has one phase of work between two meetings: moves and a fold. Bound to
// a launch it becomes a cuda::Phase: what this rank reads and writes, and for each peer what that one
// may read and write here (still by this rank's own addresses).
//
// Chunks that peers cannot work on where they lie are *staged*, each for itself, in memory of tutti's own
// on the device: copied there before ranks enter, or copied back after they left. That is this
// rank's own affair; the others see an address like any other.
//   shown    in several pieces, not to be exported, or overwritten before all have read it
//   landing  in several pieces, or not to be exported
//
// Where owners push (schedule/host/push.hpp) a chunk is a fold of one operand, written to all who want it. Who
// cannot let others write where it wants the chunk posts no target, and fetches it: nothing has to be staged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "cuda/job.hpp"
#include "engine/launch.hpp"
#include "engine/layout.hpp"
#include "schedule/host/form.hpp"

namespace tutti::engine {

// A chunk that is copied to, or from, memory of tutti's own; by its place there.
struct StagedChunk {
  Scattered pieces;
  std::size_t at = 0;
};

struct DeviceWork {
  cuda::Phase phase;             // `mine`: own addresses; `tags`: what the others must say
  std::vector<StagedChunk> in;   // copied before ranks enter
  std::vector<StagedChunk> out;  // copied after they left
  std::size_t staging_bytes = 0;
  std::uint64_t staging_base = 0;
  std::size_t work_bytes = 0;  // that this rank's fold and copies go through
};

class DevicePlan {
 public:
  // `forms`: Reach::mapped of all ranks.
  DevicePlan(std::vector<schedule::HostForm> forms, int rank);
  DevicePlan(const DevicePlan&) = delete;  // it points into its forms
  DevicePlan& operator=(const DevicePlan&) = delete;

  // Whether there is at most one chunk to read and one to write between two ranks: more does not fit
  // into a post.
  bool fits() const { return fits_; }
  // What all ranks show together, where each knows how much that is.
  std::size_t shown_bytes(const Launch& launch);

  // Whether peers can map the memory at an address.
  using CanShow = std::function<bool(const std::byte*)>;
  // What is to be done. Staged chunks have addresses relative to 0 and kStaged: `place_staging` moves them.
  void bind(const Launch& launch, const CanShow& can_show, DeviceWork& work);
  // The staged chunks lie from `base` on.
  static void place_staging(DeviceWork& work, std::uint64_t base);

 private:
  // What one peer does with this rank's memory.
  struct Guest {
    const schedule::Spot* reads = nullptr;
    const schedule::Spot* writes = nullptr;
  };
  struct Found {
    std::uint64_t address = 0;
    std::size_t bytes = 0;
  };

  void find_guests();
  Found chunk(const schedule::Spot& spot);
  Found own_source(const schedule::Spot& spot);
  Found own_target(const schedule::Spot& spot);
  Found shown(const schedule::Spot& spot);
  Found landing(const schedule::Spot& spot);
  Found stage(const schedule::Spot& spot, std::vector<StagedChunk>& list,
              std::vector<std::pair<schedule::Spot, Found>>& known);
  bool is_pushed(const schedule::HostMove& move) const { return move.givers_share == 1; }
  void bind_posts();
  void bind_moves();
  void bind_fold();
  void bind_push();
  bool goes_with_push(const schedule::HostMove& copy) const;
  std::uint64_t tag_of(std::size_t read, std::size_t written) const;

  std::vector<schedule::HostForm> forms_;
  int rank_;
  std::size_t own_;  // the same, as an index
  bool fits_ = true;
  bool pushes_ = false;        // some rank does
  std::vector<Guest> guests_;  // by rank

  // Of the launch that is being bound.
  const Launch* launch_ = nullptr;
  const CanShow* can_show_ = nullptr;
  DeviceWork* work_ = nullptr;
  ChunkLayout layout_;
  Scattered found_;
  std::vector<std::pair<schedule::Spot, Found>> staged_in_;
  std::vector<std::pair<schedule::Spot, Found>> staged_out_;
};

}  // namespace tutti::engine
