// A pipeline schedule for programs and for the browser (docs/formats/pipeline.md).
#include <fmt/format.h>

#include "tool/show/pipeline_view.hpp"
#include "tool/web_page.hpp"
#include "tutti/version.h"

namespace tutti::tool {
namespace {

Json op_json(const pipeline::PipelineOp& op) {
  Json json = {{"op", to_string(op.kind)}, {"micro_batch", op.micro_batch}};
  if (op.virtual_stage > 0) json["virtual_stage"] = op.virtual_stage;
  if (!pipeline::is_transfer(op.kind)) return json;
  json["peer"] = op.peer;
  json["batch"] = op.batch;
  return json;
}

// One stage: what it keeps, when it computes what, and its program.
Json stage_json(const ShownPipeline& shown, std::size_t rank) {
  Json slices = Json::array();
  for (const auto& slice : shown.timeline.ranks[rank])
    slices.push_back({{"op", to_string(slice.kind)},
                      {"micro_batch", slice.micro_batch},
                      {"virtual_stage", slice.virtual_stage},
                      {"begin_s", slice.begin_s},
                      {"end_s", slice.end_s}});
  Json ops = Json::array();
  for (const auto& op : shown.programs[rank].ops) ops.push_back(op_json(op));
  return {{"activations", shown.report.activations[rank]},
          {"activation_bound",
           pipeline::activation_bound(shown.kind, shown.shape, static_cast<int>(rank))},
          {"busy_s", shown.timeline.busy_s[rank]},
          {"slices", slices},
          {"program", ops}};
}

Json schedule_json(const ShownPipeline& shown) {
  Json stages = Json::array();
  for (std::size_t rank = 0; rank < shown.programs.size(); ++rank)
    stages.push_back(stage_json(shown, rank));
  return {{"schedule", to_string(shown.kind)},
          {"virtual_stages", shown.shape.virtual_stages},
          {"step_s", shown.timeline.step_s},
          {"compute_s", shown.timeline.compute_s()},
          {"bubble_s", shown.timeline.bubble_s()},
          {"bubble_share", shown.timeline.bubble_share()},
          {"bubble_ratio", shown.timeline.bubble_ratio()},
          {"closed_form_bubble_s",
           shown.closed_form_bubble_s ? Json(*shown.closed_form_bubble_s) : Json()},
          {"messages", shown.report.messages},
          {"ranks", stages}};
}

}  // namespace

Json pipeline_json(const std::vector<ShownPipeline>& shown, const StageTimes& times) {
  Json schedules = Json::array();
  for (const ShownPipeline& each : shown) schedules.push_back(schedule_json(each));
  return {{"format", "tutti pipeline 1"},
          {"version", TUTTI_VERSION},
          {"stages", shown.front().shape.stages},
          {"micro_batches", shown.front().shape.micro_batches},
          {"forward_s", times.forward_s},
          {"backward_s", times.backward_s},
          {"weight_s", times.weight_s},
          {"transfer_s", times.transfer_s},
          {"overlap", times.overlap},
          {"schedules", schedules}};
}

std::string pipeline_page(const std::vector<ShownPipeline>& shown, const StageTimes& times,
                          pipeline::PipelineKind start) {
  Json data = pipeline_json(shown, times);
  data["start"] = to_string(start);
  return assemble({.skeleton = "pipeline.html",
                   .styles = {"pipeline.css"},
                   .scripts = {"report/words.js", "pipeline/page.js"},
                   .data = data.dump_ascii()});
}

}  // namespace tutti::tool
