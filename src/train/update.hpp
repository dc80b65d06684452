// train/update.hpp - one step of the optimizer on the part of a bucket that this rank updates.
#pragma once

#include <span>
#include <vector>

#include "train/bucket.hpp"
#include "tutti/train/data_parallel.hpp"

namespace tutti::train {

// How many moments an optimizer keeps, and what they are called.
std::span<const std::string_view> moment_names(const Optimizer& optimizer);

struct Update {
  std::vector<GroupStep> groups;  // by ParameterGroup
  double grad_scale = 1;          // 1/tokens, and the clipping
};

// What a step updates each group with. invalid_argument: the step's groups are not the layer's.
Result<std::vector<GroupStep>> groups_of(const DataParallelOptions& options,
                                         const StepInput& input);

// All that is updated of one bucket: noted parameter by parameter, then done at once.
class BucketUpdate {
 public:
  BucketUpdate(const DataParallelOptions& options, const Update& update)
      : options_(options), update_(update) {}
  // One parameter that has been updated `steps` times, this one included; `first`: of its elements, from
  // the bucket's own ones on.
  void add(const GroupStep& group, std::int64_t steps, std::size_t first, std::size_t count);
  void run(Bucket& bucket, Workplace& workplace) const;

 private:
  const DataParallelOptions& options_;
  const Update& update_;
  std::vector<UpdatePart<AdamWFactors>> adamw_;
  std::vector<UpdatePart<SgdFactors>> sgd_;
};

}  // namespace tutti::train
