// pipeline_run/stage_boxes.hpp - all boxes of a rank, in memory that is taken once.
//
// What leaves lies in symmetric memory: a neighbour on the same host reads it there, so that nothing is
// copied into a window first. What comes in lies in memory of this rank alone.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "pipeline_run/boxes.hpp"

namespace tutti::pipeline {

// Of one virtual stage. At the model's ends some are missing; a place whose neighbour is on the same rank
// does not send there: it hands on into the neighbour's box.
struct StageBoxes {
  std::optional<ReceiveBox> activations_in;
  std::optional<ReceiveBox> gradients_in;
  std::optional<SendBox> activations_out;
  std::optional<SendBox> gradients_out;
};

struct RankBoxes {
  std::vector<StageBoxes> stages;  // by virtual stage
  // Kept also by a rank that sends nothing: with its own region it would drop its view of the others'.
  SymmetricMemory outgoing;
  std::size_t bytes = 0;
};

// Collective. `boundaries`: one, or one for each.
Result<RankBoxes> make_boxes(Group& group, const PipelineProgram& program,
                             const std::vector<std::vector<BoundaryTensor>>& boundaries,
                             std::chrono::nanoseconds timeout);

}  // namespace tutti::pipeline
