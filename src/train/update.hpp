// train/update.hpp - one step of the optimizer on the part of a bucket that this rank updates.
#pragma once

#include <span>

#include "train/bucket.hpp"
#include "tutti/train/data_parallel.hpp"

namespace tutti::train {

// How many moments an optimizer keeps, and what they are called.
std::span<const std::string_view> moment_names(const Optimizer& optimizer);

struct Update {
  double lr = 0;
  double grad_scale = 1;  // 1/tokens, and the clipping
};

// Of one parameter that has been updated `steps` times, this one included.
void update_parameter(const DataParallelOptions& options, const Update& update,
                      const ParameterGroup& group, std::int64_t steps, Bucket& bucket,
                      Range elements);

}  // namespace tutti::train
