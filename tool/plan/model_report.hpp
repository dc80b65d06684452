// tool/plan/model_report.hpp - a planned step as text and as JSON (docs/formats/plan_model.md).
#pragma once

#include <optional>
#include <string>

#include "core/json.hpp"
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

// Its widest table is cut to `width` letters.
std::string model_text(const ModelAnswer& answer, std::size_t width);
std::string explain_text(const std::vector<tutti::plan::Section>& sections);
Json layout_json(const tutti::plan::ModelLayout& layout);
Json model_json(const ModelAnswer& answer);

}  // namespace tutti::tool::plan
