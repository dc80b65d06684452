// tool/plan/model_report.hpp - a planned step as text and as JSON (docs/formats/plan_model.md).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "plan/explain.hpp"
#include "plan/step.hpp"

namespace tutti::tool::plan {

struct ModelAnswer {
  tutti::plan::StepPlan plan;
  std::optional<tutti::plan::GatherGain> gain;
  std::string cluster;
  std::string binds;
  std::string verdict;
};

std::string model_text(const ModelAnswer& answer);
std::string explain_text(const std::vector<tutti::plan::Section>& sections);
nlohmann::ordered_json layout_json(const tutti::plan::ModelLayout& layout);
nlohmann::ordered_json model_json(const ModelAnswer& answer);

}  // namespace tutti::tool::plan
