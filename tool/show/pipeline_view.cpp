#include "tool/show/pipeline_view.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "core/output_file.hpp"
#include "tool/command.hpp"
#include "tool/fitted_table.hpp"
#include "tool/numbers.hpp"

namespace tutti::tool {

using pipeline::PipelineKind;
using pipeline::PipelineShape;

namespace {

constexpr const char* kPipelineCommand = "show pipeline";
// What is still drawn at a glance, and proved at once.
constexpr int kMostStages = 64, kMostMicroBatches = 1024, kMostVirtualStages = 16;
constexpr const char* kPipelineFooter = R"(Examples:
  tutti show pipeline                                        # 1f1b, 4 stages, 8 micro-batches
  tutti show pipeline --schedule zb-h1 --stages 8 --micro-batches 16
  tutti show pipeline --schedule interleaved --virtual 4 --transfer 100us
  tutti show pipeline --schedule all --forward 3ms --backward 7ms --transfer 500us   # a table of all
  tutti show pipeline --schedule all --html page.html

Times are of a rank's whole stage and one micro-batch; of v virtual stages each takes 1/v.
)";

constexpr PipelineKind kShown[] = {PipelineKind::gpipe, PipelineKind::one_f_one_b,
                                   PipelineKind::interleaved, PipelineKind::zb_h1};

Result<double> read_seconds(const char* flag, const std::string& text) {
  const auto time = read_duration(flag, text, std::chrono::nanoseconds(0), std::chrono::hours(1));
  if (!time.ok()) return time.status();
  return std::chrono::duration<double>(*time).count();
}

Result<StageTimes> read_times(const PipelineViewOptions& options) {
  StageTimes times;
  times.overlap = !options.stop;
  const std::pair<const char*, std::pair<const std::string*, double*>> flags[] = {
      {"--forward", {&options.forward, &times.forward_s}},
      {"--backward", {&options.backward, &times.backward_s}},
      {"--transfer", {&options.transfer, &times.transfer_s}},
      {"--weight", {&options.weight, &times.weight_s}}};
  for (const auto& [flag, where] : flags) {
    if (where.first->empty()) continue;
    const auto seconds = read_seconds(flag, *where.first);
    if (!seconds.ok()) return seconds.status();
    *where.second = *seconds;
  }
  if (options.weight.empty()) times.weight_s = times.backward_s / 2;
  if (times.weight_s > times.backward_s)
    return Status(Code::invalid_argument,
                  fmt::format("--weight {} is more than --backward {}, of which it is a part",
                              options.weight, options.backward));
  if (times.forward_s + times.backward_s <= 0)
    return Status(Code::invalid_argument, "--forward and --backward must not both be 0");
  return times;
}

// The kinds that were asked for.
Result<std::vector<PipelineKind>> read_kinds(const PipelineViewOptions& options) {
  if (options.schedule == "all")
    return std::vector<PipelineKind>(std::begin(kShown), std::end(kShown));
  if (const auto kind = pipeline::parse_pipeline_kind(options.schedule)) return std::vector{*kind};
  return Status(Code::invalid_argument,
                fmt::format("there is no schedule '{}'; there are gpipe, 1f1b, interleaved, zb-h1, "
                            "forward and all",
                            options.schedule));
}

int virtual_stages_for(const PipelineViewOptions& options, PipelineKind kind) {
  const bool several = kind == PipelineKind::interleaved || kind == PipelineKind::forward;
  if (options.virtual_stages > 0)
    return several || options.schedule != "all" ? options.virtual_stages : 1;
  return kind == PipelineKind::interleaved ? 2 : 1;
}

Result<std::vector<ShownPipeline>> play_all(const PipelineViewOptions& options,
                                            const std::vector<PipelineKind>& kinds,
                                            const StageTimes& times) {
  std::vector<ShownPipeline> shown;
  for (const PipelineKind kind : kinds) {
    auto one = play_pipeline(
        kind, {options.stages, options.micro_batches, virtual_stages_for(options, kind)}, times);
    if (!one.ok()) return one.status();
    shown.push_back(*std::move(one));
  }
  return shown;
}

Status check_pipeline_outputs(const PipelineViewOptions& options) {
  const int outputs =
      (options.html.empty() ? 0 : 1) + (options.svg.empty() ? 0 : 1) + (options.json ? 1 : 0);
  if (outputs > 1) return {Code::invalid_argument, "--html, --svg and --json exclude each other"};
  if (Status status = check_output("--html", options.html); !status.ok()) return status;
  return check_output("--svg", options.svg);
}

int write_drawing(const std::string& path, const std::string& text) {
  if (Status status = write_file(path, text); !status.ok())
    return complain(kPipelineCommand, status);
  if (path != "/dev/stdout") fmt::print("wrote {} ({} KiB)\n", path, (text.size() + 1023) / 1024);
  return kDone;
}

// A page has all schedules, whichever was asked for.
Result<std::string> page_of_all(const PipelineViewOptions& options, const StageTimes& times,
                                PipelineKind asked) {
  PipelineViewOptions all = options;
  all.schedule = "all";
  std::vector<PipelineKind> kinds(std::begin(kShown), std::end(kShown));
  if (asked == PipelineKind::forward) kinds.push_back(asked);
  const auto shown = play_all(all, kinds, times);
  if (!shown.ok()) return shown.status();
  return pipeline_page(*shown, times,
                       options.schedule == "all" ? PipelineKind::one_f_one_b : asked);
}

}  // namespace

CLI::App* add_pipeline_parser(CLI::App& show_parser, PipelineViewOptions& options) {
  CLI::App* parser = show_parser.add_subcommand(
      "pipeline", "a pipeline schedule: who computes what when, its bubble and what it keeps");
  parser->add_option("--schedule", options.schedule,
                     "gpipe, 1f1b, interleaved, zb-h1, forward; all: a table (default 1f1b)");
  parser->add_option("--stages", options.stages, "ranks (default 4)")
      ->check(between(1, kMostStages));
  parser->add_option("--micro-batches", options.micro_batches, "of a step (default 8)")
      ->check(between(1, kMostMicroBatches));
  parser
      ->add_option("--virtual", options.virtual_stages,
                   "virtual stages of a rank, where the schedule has them (default 2)")
      ->check(between(1, kMostVirtualStages));
  parser->add_option("--forward", options.forward, "time of a forward (default 1ms)");
  parser->add_option("--backward", options.backward, "time of a whole backward (default 2ms)");
  parser->add_option("--weight", options.weight,
                     "of it, for the weights' gradients (default half of it)");
  parser->add_option("--transfer", options.transfer, "time of a message (default 0)");
  parser->add_flag("--stop", options.stop, "ranks do not compute while their messages travel");
  parser->add_option("--html", options.html, "write a page with all schedules into this file");
  parser->add_option("--svg", options.svg, "write a still drawing into this file");
  parser->add_flag("--json", options.json, "as JSON, with every op");
  parser->add_flag("--wide", options.wide, "in one piece, however narrow the window");
  parser->footer(kPipelineFooter);
  return parser;
}

int show_pipeline(const PipelineViewOptions& options) {
  if (Status status = check_pipeline_outputs(options); !status.ok())
    return complain(kPipelineCommand, status);
  const auto kinds = read_kinds(options);
  if (!kinds.ok()) return complain(kPipelineCommand, kinds.status());
  const auto times = read_times(options);
  if (!times.ok()) return complain(kPipelineCommand, times.status());
  const auto shown = play_all(options, *kinds, *times);
  if (!shown.ok()) return complain(kPipelineCommand, shown.status());
  if (!options.svg.empty()) return write_drawing(options.svg, pipeline_svg(*shown));
  if (!options.html.empty()) {
    const auto page = page_of_all(options, *times, kinds->front());
    if (!page.ok()) return complain(kPipelineCommand, page.status());
    return write_drawing(options.html, *page);
  }
  const std::size_t width = options.wide ? kAnyWidth : window_width();
  if (options.json)
    fmt::print("{}\n", pipeline_json(*shown, *times).dump(1));
  else if (options.schedule == "all")
    fmt::print("{}", pipeline_table(*shown, width));
  else
    fmt::print("{}{}", draw_pipeline(shown->front(), width), pipeline_summary(shown->front()));
  return kDone;
}

Result<ShownPipeline> play_pipeline(PipelineKind kind, const PipelineShape& shape,
                                    const StageTimes& times) {
  ShownPipeline shown{kind, shape, {}, {}, {}, {}};
  auto programs = pipeline::build_pipeline(kind, shape);
  if (!programs.ok()) return programs.status();
  shown.programs = *std::move(programs);
  auto report = pipeline::verify_pipeline(shown.programs);
  if (!report.ok()) return report.status();
  shown.report = *std::move(report);
  const double share = 1.0 / shape.virtual_stages;
  const pipeline::PlaceDurations place{
      times.forward_s * share, (times.backward_s - times.weight_s) * share, times.weight_s * share};
  auto timeline =
      pipeline::simulate_pipeline(shown.programs, {{place}, times.transfer_s, times.overlap});
  if (!timeline.ok()) return timeline.status();
  shown.timeline = *std::move(timeline);
  shown.closed_form_bubble_s = pipeline::uniform_bubble_s(kind, shape, place);
  return shown;
}

std::string title_of(const ShownPipeline& shown) {
  std::string text =
      fmt::format("{} on {} stage{}, {} micro-batch{}", to_string(shown.kind), shown.shape.stages,
                  shown.shape.stages == 1 ? "" : "s", shown.shape.micro_batches,
                  shown.shape.micro_batches == 1 ? "" : "es");
  if (shown.shape.virtual_stages > 1)
    text += fmt::format(", {} virtual stages each", shown.shape.virtual_stages);
  return text;
}

std::string short_time(double seconds) {
  const double size = seconds < 0 ? -seconds : seconds;
  if (size >= 1) return fmt::format("{:.4g} s", seconds);
  if (size >= 1e-3 || size == 0) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} us", seconds * 1e6);
}

}  // namespace tutti::tool
