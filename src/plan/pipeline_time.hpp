// plan/pipeline_time.hpp - what a step's micro-batches lose on their way through the stages of a pipeline.
//
// Short steps are played op by op (tutti/pipeline/simulate.hpp): stages may differ, and so may the messages between
// them, some of which leave a host. Of long ones closed forms say the same, but for the few micro-batches at
// their ends: the bubble is that of stages one after the other, every message as slow as the slowest.
//
// Thread-safety  pure.
#pragma once

#include <span>

#include "plan/traffic.hpp"

namespace tutti::plan {

struct PipelineTime {
  double bubble_s = 0;    // of the slowest stage, with messages that take no time
  double messages_s = 0;  // that they add
};
// `stages`: forward and backward of each, for one micro-batch.
PipelineTime pipeline_time(const ModelLayout& layout, std::span<const TwoWays> stages,
                           const PipelineTraffic& traffic);

}  // namespace tutti::plan
