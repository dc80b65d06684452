// The still drawing of pipeline schedules: one below the other, all on the same scale of time.
#include <fmt/format.h>

#include <algorithm>

#include "tool/show/pipeline_view.hpp"

namespace tutti::tool {
namespace {

using pipeline::PipelineOpKind;
using pipeline::PipelineSlice;

// Forward and backward in one hue each, which virtual stages lighten.
constexpr const char* kPipelineStyle = R"(<style>
  .paper{fill:#fff} .bubble{fill:#eceae3} text{font:12px system-ui,"DejaVu Sans",sans-serif;fill:#1b1f27}
  .muted{fill:#59616d} .title{font-size:15px;font-weight:600} .number{font-size:11px;fill:#fff;text-anchor:middle}
  .forward{fill:#3f6fd1} .backward{fill:#2c9c88} .backward_input{fill:#2c9c88} .backward_weight{fill:#b08f1a}
  .cell rect{stroke:#fff;stroke-width:1}
  @media (prefers-color-scheme:dark){ .paper{fill:#12151a} .bubble{fill:#232831} text{fill:#e9e7e1}
    .muted{fill:#a0a8b4} .cell rect{stroke:#12151a} .number{fill:#fff} }
</style>
)";

double opacity_of(const PipelineSlice& slice) {
  return std::max(0.4, 1 - 0.22 * static_cast<double>(slice.virtual_stage));
}

class PipelineDrawing {
 public:
  explicit PipelineDrawing(double longest_s) : scale_((kWidth - kLeft - kMargin) / longest_s) {}

  void add(const ShownPipeline& shown) {
    const auto& timeline = shown.timeline;
    text(kMargin, y_ + 18, "title", title_of(shown));
    text(kMargin, y_ + 36, "muted",
         fmt::format("step {}, bubble {} ({:.1f} % of the step); keeps {} micro-batches at most",
                     short_time(timeline.step_s), short_time(timeline.bubble_s()),
                     100 * timeline.bubble_share(),
                     fmt::format("{:.4g}", static_cast<double>(
                                               *std::max_element(shown.report.activations.begin(),
                                                                 shown.report.activations.end())) /
                                               shown.shape.virtual_stages)));
    y_ += kHead;
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      text(kMargin, y_ + kRow / 2 + 4, "muted", fmt::format("stage {}", rank));
      rect("bubble", 0, timeline.step_s, 1);
      for (const PipelineSlice& slice : timeline.ranks[rank]) cell(slice);
      y_ += kRow;
    }
    y_ += kGap;
  }

  std::string finish() const {
    return fmt::format(
        R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" )"
        R"(height="{1:.0f}">{2}<rect class="paper" width="100%" height="100%"/>)"
        "\n{3}</svg>\n",
        kWidth, y_, kPipelineStyle, body_);
  }

 private:
  double x(double seconds) const { return kLeft + seconds * scale_; }
  void text(double at_x, double at_y, const char* kind, const std::string& words) {
    body_ += fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", kind, at_x,
                         at_y, words);
  }
  void rect(std::string_view kind, double from_s, double to_s, double opacity) {
    body_ += fmt::format(
        R"(<rect class="{}" x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}" opacity="{:g}"/>)"
        "\n",
        kind, x(from_s), y_ + 1, (to_s - from_s) * scale_, kRow - 2, opacity);
  }
  void cell(const PipelineSlice& slice) {
    body_ += fmt::format(
        "<g class=\"cell\"><title>{} {}{}: {} … {}</title>", to_string(slice.kind),
        slice.micro_batch,
        slice.virtual_stage > 0 ? fmt::format(", virtual stage {}", slice.virtual_stage) : "",
        short_time(slice.begin_s), short_time(slice.end_s));
    rect(to_string(slice.kind), slice.begin_s, slice.end_s, opacity_of(slice));
    const std::string number = std::to_string(slice.micro_batch);
    const double room = (slice.end_s - slice.begin_s) * scale_;
    if (static_cast<double>(number.size()) * kLetterWidth + 2 <= room)
      text(x((slice.begin_s + slice.end_s) / 2), y_ + kRow / 2 + 4, "number", number);
    body_ += "</g>\n";
  }

  static constexpr double kWidth = 1120, kLeft = 72, kMargin = 16, kRow = 26, kHead = 48, kGap = 22;
  static constexpr double kLetterWidth = 6.6;

  double scale_;  // units a second
  double y_ = 4;
  std::string body_;
};

}  // namespace

std::string pipeline_svg(const std::vector<ShownPipeline>& shown) {
  double longest = 0;
  for (const ShownPipeline& each : shown) longest = std::max(longest, each.timeline.step_s);
  PipelineDrawing drawing(longest);
  for (const ShownPipeline& each : shown) drawing.add(each);
  return drawing.finish();
}

}  // namespace tutti::tool
