// tool/show/pipeline_view.hpp - `tutti show pipeline`: a pipeline schedule, proved, played in virtual time and
// drawn.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "tutti/pipeline/simulate.hpp"

namespace CLI {
class App;
}

namespace tutti::tool {

struct PipelineViewOptions {
  std::string schedule = "1f1b";  // or all
  int stages = 4;
  int micro_batches = 8;
  int virtual_stages = 0;  // 0: not said, 2 where there are several
  std::string forward = "1ms", backward = "2ms", weight, transfer = "0";
  bool stop = false;  // for each batch, instead of computing meanwhile
  bool json = false;
  bool wide = false;
  std::string html;
  std::string svg;
};
CLI::App* add_pipeline_parser(CLI::App& show_parser, PipelineViewOptions& options);
int show_pipeline(const PipelineViewOptions& options);

// What was asked for: of a rank's whole stage, which its virtual stages share.
struct StageTimes {
  double forward_s = 0, backward_s = 0, weight_s = 0, transfer_s = 0;  // backward: with weight
  bool overlap = true;
};

// One schedule, proved and played.
struct ShownPipeline {
  pipeline::PipelineKind kind{};
  pipeline::PipelineShape shape;
  std::vector<pipeline::PipelineProgram> programs;
  pipeline::PipelineReport report;
  pipeline::PipelineTimeline timeline;
  std::optional<double> closed_form_bubble_s;  // where there is one, with free transfers
};
Result<ShownPipeline> play_pipeline(pipeline::PipelineKind kind,
                                    const pipeline::PipelineShape& shape, const StageTimes& times);

// "1f1b on 4 stages, 8 micro-batches".
std::string title_of(const ShownPipeline& shown);
// "33 ms", "1.25 ms".
std::string short_time(double seconds);

// The picture: a row for each stage, time to the right, cut where the window ends.
std::string draw_pipeline(const ShownPipeline& shown, std::size_t width);
std::string pipeline_summary(const ShownPipeline& shown);
std::string pipeline_table(const std::vector<ShownPipeline>& shown, std::size_t width);
Json pipeline_json(const std::vector<ShownPipeline>& shown, const StageTimes& times);
std::string pipeline_svg(const std::vector<ShownPipeline>& shown);
std::string pipeline_page(const std::vector<ShownPipeline>& shown, const StageTimes& times,
                          pipeline::PipelineKind start);

}  // namespace tutti::tool
