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
  bool widens = false;  // bf16 is sent, and its sum is of f32
  double at_s = 0;
  double alone_s = 0;  // measured in a queue of its like, while nothing was computed
};

// Means over the rehearsed steps and over all ranks; alike on every rank.
struct Rehearsal {
  tutti::plan::StepShape shape;               // without control_s
  std::vector<PlannedCollective> reductions;  // in the order of launch
  std::vector<PlannedCollective> gathers;     // in the order of use
  PlannedCollective control;
  double waiting_s = 0;  // by which the slowest rank of a step is behind the mean
};

struct Foretold {
  tutti::plan::StepPrediction step;
  double alone_s = 0;  // all collectives, measured alone
  double tuner_s = 0;  // the same by Group::predict, for comparison
  tutti::plan::Pace pace;
};
tutti::Result<Foretold> foretell(tutti::Group& group, const Rehearsal& rehearsal);

// Means over ranks and steps.
struct MeasuredSteps {
  double step_s = 0, exposed_s = 0, wire_s = 0;
};
// Lines for people: predicted beside measured, and the difference.
std::string compare(const Foretold& foretold, const MeasuredSteps& measured);

}  // namespace pretrain
