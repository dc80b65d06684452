// train/gatherer.hpp - how weights that are kept in shards become whole, and for how long.
//
//   need ─▶ in use … done ─▶ given back            first micro-batch, and outside of one: on demand, when
//                                                   all ranks have said that they want the same
//   need ─▶ in use … done ─▶ given back, or kept    later: in the order of the plan (pass_plan.hpp)
//     └─▶ the next gathers start
//
// Every rank starts all gathers of a plan in its order. One that needs what comes later starts what lies
// between, too, and has it until the pass is over.
//
// Ordering       outside of a plan need is collective.
// Thread-safety  one thread at a time.
// Failure        mismatch: on demand, ranks need different weights. invalid_argument: more often in a
//                micro-batch than in the first one.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "train/bucket.hpp"
#include "train/bucket_slots.hpp"
#include "train/pass_plan.hpp"
#include "train/stopwatch.hpp"

namespace tutti::train {

class Gatherer {
 public:
  // What it works on stays the replica's, which may change it between steps.
  struct Parts {
    const std::vector<Parameter>& parameters;
    const BucketLayout& layout;
    std::vector<std::unique_ptr<Bucket>>& buckets;
    Stopwatch& watch;
  };
  explicit Gatherer(const Parts& parts) : parts_(parts) {}

  // `group`: of its own; what others do in one of theirs must not come between.
  void set_up(std::shared_ptr<Group> group, std::shared_ptr<BucketSlots> slots);
  bool is_set_up() const { return slots_ != nullptr; }
  const std::shared_ptr<BucketSlots>& slots() const { return slots_; }

  void begin_micro_batch();
  Status begin_backward();
  // The parameter's bucket is whole until as many done() have come. Frozen ones always are.
  Status need(std::size_t parameter);
  // True when nobody uses that parameter any more.
  bool done(std::size_t parameter);
  // All gathers of this micro-batch, for ranks that are further on in it.
  void launch_rest();
  // Of a micro-batch, or of one that was left halfway: what other ranks start has been started here as
  // well, and nothing is whole any more.
  Status end_pass();
  // Memory is lent to what is under way: waits for it.
  void settle();
  // Weights have their values for the next micro-batch: its first gathers may begin.
  void start_ahead();

  // Of the first micro-batch, when its pass has ended. Collective: rank 0's becomes the plan. `depth` 0: by prediction.
  bool is_learning() const { return !has_plan_; }
  Status learn(int depth);
  const PassPlan& plan() const { return plan_; }
  // What rank 0 has foreseen when it chose the depth.
  double predicted_exposed_s() const { return predicted_exposed_s_; }

 private:
  struct Spare {
    SymmetricMemory memory;
    Pending pending;
  };
  std::size_t bucket_of(std::size_t parameter) const {
    return parts_.layout.place[parameter]->bucket;
  }
  Status use(std::size_t parameter, std::size_t bucket);
  Status gather_now(std::size_t parameter, std::size_t bucket);
  Status agree(std::size_t parameter, std::size_t bucket);
  void launch(std::size_t gather);
  void launch_all(std::size_t bucket);
  void start(Pending& pending, std::size_t bucket, const SymmetricMemory& memory);
  void prefetch();
  void drop_unused();
  void let_go(std::size_t bucket);
  std::size_t end_of_pass() const { return in_backward_ ? plan_.buckets.size() : plan_.backward; }
  std::int64_t compute_ns() const;
  std::vector<PacedGather> paces() const;

  Parts parts_;
  std::shared_ptr<Group> group_;
  std::shared_ptr<BucketSlots> slots_;

  std::vector<int> users_;   // by parameter
  std::vector<int> in_use_;  // by bucket: users of its parameters
  std::vector<int> holds_;   // by bucket: gathers that were started and not let go of
  std::list<Spare> spares_;  // gathers of what was whole anyway
  Status status_;            // of memory that a launch did not get

  std::vector<WeightUse> seen_;  // until there is a plan
  std::int64_t waited_ns_ = 0;
  PassPlan plan_;
  double predicted_exposed_s_ = 0;
  bool has_plan_ = false;
  bool in_pass_ = false;
  bool is_running_ = false;  // a micro-batch's gathers have begun, and not ended
  bool in_backward_ = false;
  std::size_t launched_ = 0;   // gathers of the plan
  std::size_t at_ = 0;         // behind the one that was used last
  std::vector<bool> is_used_;  // of the plan's gathers; dropped ones, too
};

}  // namespace tutti::train
