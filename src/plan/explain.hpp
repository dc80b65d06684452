// plan/explain.hpp - every term of a plan with its formula and its numbers, for people who check.
#pragma once

#include <string>
#include <vector>

#include "plan/step.hpp"

namespace tutti::plan {

// One line: "name  formula = numbers = result".
struct Term {
  std::string name;
  std::string formula;
  std::string numbers;
  std::string result;
};
struct Section {
  std::string title;
  std::vector<Term> terms;
};

std::vector<Section> explain(const StepPlan& plan, Prices& prices);

}  // namespace tutti::plan
