// train/reducer.hpp - how gradients cross the ranks: which bucket goes when, and where its sum stays.
//
//   open ─▶ gradients are added … complete ─▶ launch ─▶ settle
//            │                                  │          │
//            memory, zero at first              │          a slot goes back; the sum of micro-batches grows
//                                               over a sum group first, where the bucket has one
//
// Buckets go by their number on all ranks of the data group, those with sums last. Once a step, in its last
// micro-batch; or in every one (DataParallelOptions::reduce_every_micro_batch): a *round* each.
//
// Ordering       launches are collective, in the same order on all ranks.
// Thread-safety  one thread at a time.
// Failure        of memory: open() says so. Of a group: settle().
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "train/bucket.hpp"
#include "train/bucket_slots.hpp"
#include "train/stopwatch.hpp"
#include "train/sum_group.hpp"

namespace tutti::train {

using Buckets = std::vector<std::unique_ptr<Bucket>>;

class Reducer {
 public:
  // What it works on stays the replica's, which may change it between steps.
  struct Parts {
    const std::shared_ptr<Group>& group;
    const std::vector<std::unique_ptr<SumGroup>>& sum_groups;
    const std::shared_ptr<Workplace>& workplace;
    const DataParallelOptions& options;
    const std::vector<Parameter>& parameters;
    Buckets& buckets;
    Stopwatch& watch;
  };
  explicit Reducer(const Parts& parts) : parts_(parts) {}

  // For gradients that are not kept whole.
  void set_slots(std::shared_ptr<BucketSlots> slots) { slots_ = std::move(slots); }
  bool in_every_micro_batch() const { return parts_.options.reduce_every_micro_batch; }

  // No gradient of a round is in yet.
  void begin_round();
  // Where gradients of a bucket are added up. Those of the micro-batch before have been reduced.
  Result<Buffer> open(std::size_t bucket);
  // All gradients of one of its parameters are in: buckets go that are complete.
  void complete(std::size_t bucket);
  bool has_gone(std::size_t bucket) const { return bucket < next_; }
  // What is not there is this rank's zeros: all that is left of this round goes.
  void launch_rest();
  // As long as it is not known which gradients come, and how often: buckets may go before they are
  // complete, where there is no memory for more of them, and once more with what came late.
  void set_may_go_again(bool may) { may_go_again_ = may; }
  void launch_again(std::size_t bucket) { launch(bucket); }
  // How many rounds have gone in this step.
  int rounds() const { return rounds_; }

  // Its reduction is over: what comes next finds the result.
  Status settle(std::size_t bucket);
  Status settle_all();
  void end_step() { rounds_ = 0; }

 private:
  Result<SymmetricMemory> take_slot(std::size_t bucket);
  void launch(std::size_t bucket);
  void launch_sum(Bucket& bucket, std::size_t index);
  void launch_reduction(Bucket& bucket, std::size_t index);
  void look_at_gradients(const Bucket& bucket, std::size_t index);
  CallOptions call_on(const Bucket& bucket) const;

  Parts parts_;
  std::shared_ptr<BucketSlots> slots_;
  std::size_t next_ = 0;              // bucket that goes next
  std::deque<std::size_t> launched_;  // and not settled yet, those that went first in front
  int rounds_ = 0;
  bool may_go_again_ = false;
};

}  // namespace tutti::train
