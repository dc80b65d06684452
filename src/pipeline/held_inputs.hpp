// pipeline/held_inputs.hpp - how many received tensors a rank's virtual stages hold at the same time, if
// none is received before its batch: what its buffers must have room for.
#pragma once

#include <vector>

#include "tutti/pipeline/schedule.hpp"

namespace tutti::pipeline {

// Of one virtual stage, at most. What a place of the same rank hands on counts like a message. Held until
// the last backward of the micro-batch, in evaluation until the end of its forward.
struct HeldInputs {
  int activations = 0;
  int gradients = 0;
};

std::vector<HeldInputs> held_inputs(const PipelineProgram& program);

}  // namespace tutti::pipeline
