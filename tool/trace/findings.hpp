// tool/trace/findings.hpp - what a run's analysis means, in sentences; the weightiest first. Pure.
#pragma once

#include <string>
#include <vector>

#include "trace/exposure.hpp"

namespace tutti::tool::trace {

struct Finding {
  std::string level;  // good, note, warn
  std::string text;
};

// Means over ranks and steps; without the first step where there are others, which warms up.
struct Summary {
  std::size_t steps = 0;  // that count
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  double step_ns = 0;  // of the slowest rank
  double compute_ns = 0, communication_ns = 0, wait_ns = 0, exposed_ns = 0;
  double bubble_ns = 0;
  tutti::trace::Causes causes{};
  double overlap = -1;  // HTA's; -1: nothing says what was computed
};

// The steps that Summary counts.
std::vector<const tutti::trace::Step*> counted_steps(const tutti::trace::Analysis& analysis);
Summary summarise(const tutti::trace::Analysis& analysis);
std::vector<Finding> find_findings(const tutti::trace::TracedRun& run,
                                   const tutti::trace::Analysis& analysis, const Summary& summary);

}  // namespace tutti::tool::trace
