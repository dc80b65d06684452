// apps/pretrain_gpt/prediction.hpp - from a rehearsal to a step's predicted times
// (tutti/plan/timeline.hpp), and how they compare with what was measured.
#pragma once

#include <string>
#include <vector>

#include "tutti/group.hpp"
#include "tutti/plan.hpp"
#include "tutti/train/overlap.hpp"

namespace pretrain {

// A bucket's collective: `at_s` is compute before it is ready, or before it is needed.
struct PlannedCollective {
  tutti::Collective collective = tutti::Collective::barrier;
  std::size_t bytes = 0;
  double at_s = 0;
};

// Means over the rehearsed steps and over all ranks; alike on every rank.
struct Rehearsal {
  tutti::plan::StepShape shape;  // without control_s
  std::vector<PlannedCollective> reductions;  // in the order of launch
  std::vector<PlannedCollective> gathers;     // in the order of use
  std::size_t control_bytes = 0;
  double waiting_s = 0;  // by which the slowest rank of a step is behind the mean
};

// With the group's own prediction of what each collective costs.
tutti::Result<tutti::plan::StepPrediction> predict(tutti::Group& group, const Rehearsal& rehearsal);

// Lines for people: predicted beside measured (means over ranks and steps), and the difference.
std::string compare(const tutti::plan::StepPrediction& predicted, double measured_step_s,
                    double measured_exposed_s, double measured_wire_s);

}  // namespace pretrain
