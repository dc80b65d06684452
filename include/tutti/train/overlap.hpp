// tutti/train/overlap.hpp - where a step's time went, and how much communication compute has hidden.
//
// Per rank and step:
//   wait      the compute thread was blocked on a bucket, a gather or the control all_reduce
//   skew      the part of it before the last rank had joined that collective
//   exposed   wait − skew
//   wire      time in which at least one collective was on its way, each counted from its last
//             joiner to its completion. (Collectives of one group queue: adding their times up would
//             count the queue, and flatter the share.)
//   hidden    1 − exposed / wire
//   bound     max(forward, all_gather) + max(backward, reduce_scatter) + update + tail: no schedule
//             of this step can be shorter. Tail: what of the last bucket's reduction cannot begin
//             before backward ends; reduce_scatter here is the rest of the reductions, and of several
//             micro-batches only the first forward and the last backward hide anything.
//
// A gather belongs to the step whose forward waits for it, one after that which started it.
// Clocks of other hosts are compared by their offset to rank 0's, measured when an OverlapMeter is
// made.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/group.hpp"

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

// One collective of a step as this rank saw it; times in ns of its own steady clock.
struct CollectiveTimes {
  Collective collective = Collective::barrier;
  int bucket = -1;  // -1: the control all_reduce
  std::size_t bytes = 0;
  std::int64_t joined = 0;
  std::int64_t done = 0;
  std::int64_t wait_begin = 0;  // equal: nobody waited
  std::int64_t wait_end = 0;
};

// All ranks have the same collectives in the same order.
struct StepTimes {
  std::int64_t begin = 0;    // of the first micro-batch
  std::int64_t end = 0;      // of step()
  std::int64_t forward = 0;  // durations without waits, all micro-batches
  std::int64_t backward = 0;
  std::int64_t update = 0;
  // The last micro-batch's backward and the first one's forward: what can hide something.
  std::int64_t last_backward = 0;
  std::int64_t first_forward = 0;
  std::vector<CollectiveTimes> collectives;
};

struct RankOverlap {
  double step_s = 0, forward_s = 0, backward_s = 0, update_s = 0;
  double wait_s = 0, skew_s = 0, exposed_s = 0, wire_s = 0;
  double reduce_wire_s = 0, gather_wire_s = 0, tail_s = 0;
  double hidden = 1;  // share; 1 when there was nothing to hide
  double bound_s = 0;
};

struct StepOverlap {
  std::int64_t step = 0;
  std::vector<RankOverlap> ranks;  // of an OverlapMeter: this rank's alone
  RankOverlap max;                 // field by field; hidden: the smallest
  RankOverlap mean;
};

// What the definitions above make of all ranks' times. `offsets[r]`: add to rank r's clock to get
// rank 0's. Pure. mismatch when ranks list different collectives.
Result<StepOverlap> compare_times(std::int64_t step, std::span<const StepTimes> ranks,
                                  std::span<const std::int64_t> offsets);

// What compute has waited for one bucket's weights, and for its gradients, on this rank in this step. With zero = 3
// buckets are units (DataParallel::describe names them).
struct BucketWaits {
  int bucket = 0;
  double gather_s = 0;
  double reduce_s = 0;
};
// By bucket; those that had a collective.
std::vector<BucketWaits> exposed_by_bucket(const StepTimes& times);

// Exchanges StepTimes beside the training, on groups of its own.
class OverlapMeter {
 public:
  // Collective; measures the clocks' offsets.
  static Result<std::unique_ptr<OverlapMeter>> create(Group& group);
  virtual ~OverlapMeter() = default;  // not collective; gives up what has not come after 2 s
  // Collective; does not wait. At most a few steps may be under way.
  virtual Status publish(std::int64_t step, const StepTimes& times) = 0;
  // The oldest step that was published, when everybody's times are here. `wait`: blocks for it.
  virtual Result<std::optional<StepOverlap>> take(bool wait) = 0;
};

}  // namespace v1
}  // namespace tutti::train
