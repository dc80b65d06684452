// train/buddy.hpp - copies of shards, so that one which is lost with its rank is not lost.
//
// After each step a rank packs its shard and sends it to the next rank, which keeps it; the last
// one sends to rank 0. That goes on beside the next step's compute and is waited for before the
// ranks agree on that step. So whoever has agreed on step s + 1 knows that every shard of step s lies
// on two ranks. Two versions are kept of the own shard and of the neighbour's:
//
//   a rank died, and …           all survivors have     the dead one's shard is there of
//   somebody updated in step s   s − 1                  s − 1
//   nobody did                   s − 1 and s − 2        s − 2, perhaps s − 1
//
// Thread-safety  one thread at a time.
// Failure        of the group: told by finish().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tutti/group.hpp"

namespace tutti::train {

// The state of all elements that one rank updates, as it was after a step.
struct ShardCopy {
  std::int64_t step = -1;                 // -1: there is none
  std::vector<float> values;              // packed by the replica
  std::vector<std::int64_t> step_counts;  // by parameter; of the own shard alone
};

class Buddy {
 public:
  // Collective: makes a copy of `group`. `floats`: of a packed shard, the same on all ranks.
  static Result<std::unique_ptr<Buddy>> create(Group& group, std::size_t floats);
  // Memory is lent to what is under way.
  ~Buddy();

  // Where the shard of this step is to be packed; then exchange() sends it.
  ShardCopy& own_of_step(std::int64_t step);
  void exchange();
  // The exchange has ended: the neighbour's shard is there.
  Status finish();

  // ---- when nothing is under way
  // Null: not there, or not whole.
  const ShardCopy* own(std::int64_t step) const { return find(own_, step); }
  const ShardCopy* neighbours(std::int64_t step) const { return find(neighbours_, step); }
  // The steps of which there are copies, the newest first; -1: of none.
  std::array<std::int64_t, 2> own_steps() const { return steps_of(own_); }
  std::array<std::int64_t, 2> neighbours_steps() const { return steps_of(neighbours_); }
  // Whose shard is kept here.
  int neighbour() const { return (group_->rank() + group_->size() - 1) % group_->size(); }

 private:
  using Versions = std::array<ShardCopy, 2>;
  Buddy(std::shared_ptr<Group> group, std::size_t floats);
  static const ShardCopy* find(const Versions& versions, std::int64_t step);
  std::array<std::int64_t, 2> steps_of(const Versions& versions) const {
    return {versions[1 - turn_].step, versions[turn_].step};
  }

  std::shared_ptr<Group> group_;
  Versions own_, neighbours_;
  std::size_t turn_ = 0;  // the version that is written next
  bool under_way_ = false;
  Work send_, receive_;
};

}  // namespace tutti::train
