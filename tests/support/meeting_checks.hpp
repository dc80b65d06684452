// support/meeting_checks.hpp - ranks that meet inside kernels, or just before: what job.hpp promises.
//
// The ranks are launches of one process that run at the same time, on the host (threads), on the emulated
// driver or on a GPU (streams): a LaunchWorld. Each check ends with gtest's assertions.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/job.hpp"
#include "tutti/types.hpp"

namespace tutti::cuda {

// Where launches run. Those of one rank run in the order they were started in, those of several at once.
class LaunchWorld {
 public:
  virtual ~LaunchWorld() = default;
  // Zeroed, and there until the world ends.
  virtual std::uint64_t allocate(std::size_t bytes) = 0;
  virtual void* allocate_host(std::size_t bytes) = 0;  // at the same address for kernels
  virtual void write(std::uint64_t to, const void* from, std::size_t bytes) = 0;
  virtual void read(void* to, std::uint64_t from, std::size_t bytes) = 0;
  virtual void start(int rank, const Phase& phase, Dtype dtype, int blocks) = 0;
  virtual void start_meet(int rank, const Phase& phase) = 0;
  // Keeps a launch, as a graph does, and starts what was kept.
  virtual void keep(int rank, const Phase& phase, Dtype dtype, int blocks) = 0;
  virtual void start_kept(int rank) = 0;
  virtual void finish() = 0;  // until all launches have ended
};

struct MeetingSize {
  int ranks = 2;
  int blocks = 1;
  std::size_t count = 1000;  // elements, f32
};

// Each rank folds its part of all ranks' sources and writes it to all ranks' targets; several times.
void check_fold_among_peers(LaunchWorld& world, MeetingSize size);
// With a launch behind that copies what others wrote, and meets nobody: leaving is all that orders it.
void check_fold_then_copy(LaunchWorld& world, MeetingSize size);
// The same by launches that were captured once and are replayed.
void check_fold_by_replays(LaunchWorld& world, MeetingSize size);
// The same with a launch of `meet` first, so that blocks need not fit at once.
void check_fold_after_meet(LaunchWorld& world, MeetingSize size);
// Each rank copies everybody's source; the host has posted, and its stream sees to leaving.
void check_copies_by_posts(LaunchWorld& world, MeetingSize size);
// One rank's call differs: all ranks say so, nobody does anything, and the next call is a good one.
void check_difference(LaunchWorld& world, MeetingSize size, int odd_one);
void check_difference_in_posts(LaunchWorld& world, MeetingSize size);
// One rank does not come, or does not leave: the others give up when they are told to, and tell nobody
// that they are through.
enum class GiveUp { by_abort_word, by_poison };
void check_giving_up(LaunchWorld& world, MeetingSize size, GiveUp how);
void check_giving_up_at_the_end(LaunchWorld& world, MeetingSize size, GiveUp how);

}  // namespace tutti::cuda
