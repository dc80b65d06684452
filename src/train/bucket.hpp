// train/bucket.hpp - one bucket's memory, state and collectives under way.
//
// What of it is kept whole is the mode's to say (Keeps). What is not lies in a slot (bucket_slots.hpp) for as long
// as it is whole, and of it this rank keeps its shard:
//
//               weights        gradients                       optimizer's state
//   zero 0      whole          whole                           whole
//        1      whole          whole                           shard
//        2      whole          slot; sum in the shard          shard
//        3      slot; shard    slot; sum in the shard          shard
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/bucket_layout.hpp"
#include "train/workplace.hpp"
#include "tutti/group.hpp"

namespace tutti::train {

struct Range {
  std::size_t first = 0;
  std::size_t count = 0;
};
Range overlap_of(Range a, Range b);

// A collective that was started, until somebody has waited for it.
struct Pending {
  Work work;
  std::size_t record = 0;  // in the step's list of collectives
  bool waited = true;
};

struct Keeps {
  bool whole_weights = true;
  bool whole_gradients = true;
  bool whole_state = true;
  bool sum = false;         // of the micro-batches' reduced gradients, in the shard
  bool sends_bf16 = false;  // of gradients; they are kept in f32
};
Keeps keeps_of(const DataParallelOptions& options);

class Bucket {
 public:
  // Collective: allocates symmetric memory for what is kept whole, filled with zeros.
  static Result<std::unique_ptr<Bucket>> create(Group& group, BucketPlan plan, const Keeps& keeps,
                                                std::shared_ptr<Workplace> workplace);

  const BucketPlan& plan() const noexcept { return plan_; }
  const Keeps& keeps() const noexcept { return keeps_; }
  // The elements whose norm this rank sums, and those that it updates: the same, or all of them.
  Range shard() const noexcept { return shard_; }
  Range own() const noexcept { return own_; }

  // ---- the whole, which must be there: kept, or in a slot
  std::size_t value_bytes() const { return plan_.elements * size_of(plan_.dtype); }
  std::size_t gradient_bytes() const { return train::gradient_bytes(plan_, keeps_.sends_bf16); }
  Buffer values() const { return values({0, plan_.elements}); }
  Buffer values(Range range) const;
  Buffer gradients() const { return gradients({0, plan_.elements}); }
  Buffer gradients(Range range) const;
  // The gradients as they are sent: themselves, or rounded to bf16, which is done here.
  Buffer sent_gradients();
  bool has_values() const { return values_.data != nullptr; }
  bool has_gradients() const { return gradients_.data != nullptr; }
  void set_values(SymmetricMemory slot) { values_ = std::move(slot); }
  void set_gradients(SymmetricMemory slot) { gradients_ = std::move(slot); }

  // ---- what this rank keeps in any case
  // Elements of shard(), by their place in the bucket.
  Buffer shard_values(Range range) const;
  // Reduced gradients: of shard(), and of own().
  Buffer reduced(Range range) const;
  // Of a slot that has the values of all ranks: this rank's part of it is kept.
  void keep_shard();
  // Adds what the reduction has left in the shard's place to the sum.
  void add_reduced();
  void zero_gradients();
  void zero_sum();
  // State of the elements in own(); made when it is first asked for.
  float* main_weights();  // f32 values themselves, or the f32 copy behind narrow ones
  float* moment(int which);
  bool has_main_copy() const noexcept { return plan_.dtype != Dtype::f32; }
  // main weights ← values
  void widen_values();
  // values of own() ← main weights
  void narrow_values();
  // Of what was made so far, without slots.
  MemoryUse memory() const;

  std::string name;  // of its collectives, in logs and traces

  // ---- this step
  std::size_t missing = 0;  // gradients that have not come yet
  Pending sum;              // over ranks of other data groups, before the reduction
  Pending reduction;
  Pending gather;
  // Which update the values should have, and which has landed here.
  std::uint64_t generation = 0;
  std::uint64_t landed = 0;

 private:
  Bucket() = default;
  Buffer own_values() const;

  BucketPlan plan_;
  Keeps keeps_;
  Range shard_;
  Range own_;
  SymmetricMemory values_;
  SymmetricMemory gradients_;
  std::shared_ptr<Workplace> workplace_;
  std::shared_ptr<float> shard_values_;  // where values are not kept whole
  std::shared_ptr<float> sum_;
  std::shared_ptr<float> main_;
  std::shared_ptr<float> moments_[2];
};

}  // namespace tutti::train
