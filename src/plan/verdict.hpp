// plan/verdict.hpp - what binds a step, and what to change: one line.
#pragma once

#include <string>
#include <string_view>

#include "plan/step.hpp"

namespace tutti::plan {

enum class Constraint : std::uint8_t {
  memory,
  compute,
  bubble,
  tensor,
  context,
  pipeline,
  gradients,
  weights,
  update,
};
inline constexpr int kConstraints = 9;
std::string_view to_string(Constraint constraint) noexcept;

// Memory where it does not fit; else the largest part of the step beside compute; compute where no
// other part reaches kNoticeable of the step.
inline constexpr double kNoticeable = 0.05;
Constraint binding_constraint(const StepPlan& plan);
// Seconds of the step that this constraint takes.
double seconds_of(const StepPlan& plan, Constraint constraint);
// "weights", "gradients", "optimizer", "activations" or "buffers".
std::string_view largest_part(const Memory& memory);

std::string verdict(const StepPlan& plan, const Cluster& cluster);

}  // namespace tutti::plan
