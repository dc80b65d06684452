// train/bucket.hpp - one bucket's memory, state and collectives under way.
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

class Bucket {
 public:
  // Collective: allocates symmetric memory, filled with zeros.
  static Result<std::unique_ptr<Bucket>> create(Group& group, BucketPlan plan, bool sharded,
                                                std::shared_ptr<Workplace> workplace);

  const BucketPlan& plan() const noexcept { return plan_; }
  // The elements whose norm this rank sums, and those that it updates: the same, or all of them.
  Range shard() const noexcept { return shard_; }
  Range own() const noexcept { return own_; }

  Buffer values() const;  // the whole bucket
  Buffer gradients() const;
  Buffer values(Range range) const;
  Buffer gradients(Range range) const;
  void zero_gradients();
  // State of the elements in own(); made when it is first asked for.
  float* main_weights();  // f32 values themselves, or the f32 copy behind bf16 ones
  float* moment(int which);
  bool has_main_copy() const noexcept { return plan_.dtype != Dtype::f32; }
  // main weights ← values
  void widen_values();
  // values of own() ← main weights
  void narrow_values();
  // Of what was made so far.
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

  BucketPlan plan_;
  Range shard_;
  Range own_;
  SymmetricMemory values_;
  SymmetricMemory gradients_;
  std::shared_ptr<Workplace> workplace_;
  std::shared_ptr<float> main_;
  std::shared_ptr<float> moments_[2];
};

}  // namespace tutti::train
