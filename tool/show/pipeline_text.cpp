// A pipeline schedule in a terminal: the picture, what it comes to, and all schedules side by side.
//
//            0                       9.6 ms
//   stage 0  0>1>2>3>······0<<<4>1<<<5>2<<<…      number: micro-batch
//   stage 1  ··0>1>2>···0<<<3>1<<<4>2<<<5>        > forward, < backward, b and w its parts, · bubble
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tool/fitted_table.hpp"
#include "tool/show/pipeline_view.hpp"

namespace tutti::tool {
namespace {

using pipeline::PipelineKind;
using pipeline::PipelineOpKind;
using pipeline::PipelineSlice;

// One for each virtual stage, then again.
char fill_of(const PipelineSlice& slice) {
  constexpr char kForward[] = {'>', ')', ']', '}'};
  constexpr char kBackward[] = {'<', '(', '[', '{'};
  const auto stage = static_cast<std::size_t>(slice.virtual_stage % 4);
  switch (slice.kind) {
    case PipelineOpKind::forward: return kForward[stage];
    case PipelineOpKind::backward: return kBackward[stage];
    case PipelineOpKind::backward_input: return 'b';
    case PipelineOpKind::backward_weight: return 'w';
    case PipelineOpKind::send_activation:
    case PipelineOpKind::recv_activation:
    case PipelineOpKind::send_gradient:
    case PipelineOpKind::recv_gradient: break;
  }
  return '?';
}

class PipelinePicture {
 public:
  explicit PipelinePicture(const ShownPipeline& shown) : shown_(shown) {
    double shortest = shown.timeline.step_s;
    for (const auto& rank : shown.timeline.ranks)
      for (const PipelineSlice& slice : rank)
        if (slice.end_s > slice.begin_s) shortest = std::min(shortest, slice.end_s - slice.begin_s);
    const double digits =
        static_cast<double>(fmt::formatted_size("{}", shown.shape.micro_batches - 1));
    scale_ = std::min((digits + 1) / shortest, kMostColumns / shown.timeline.step_s);
    columns_ = column(shown.timeline.step_s);
    for (const auto& rank : shown.timeline.ranks) rows_.push_back(row(rank));
  }

  std::string draw(std::size_t width) const {
    const std::size_t left = fmt::formatted_size("stage {}", shown_.shape.stages - 1) + 2;
    const std::size_t room = width == kAnyWidth ? columns_ : std::max<std::size_t>(width - left, 8);
    std::string text;
    for (std::size_t from = 0; from < columns_; from += room) {
      const std::size_t count = std::min(room, columns_ - from);
      text += std::string(left, ' ') + axis(from, count) + "\n";
      for (std::size_t rank = 0; rank < rows_.size(); ++rank)
        text += padded(fmt::format("stage {}", rank), left, TableColumn::Side::left) +
                dotted(rows_[rank].substr(from, count)) + "\n";
    }
    return text;
  }

 private:
  std::size_t column(double seconds) const {
    return static_cast<std::size_t>(std::llround(seconds * scale_));
  }

  // Blanks are the bubble.
  std::string row(const std::vector<PipelineSlice>& slices) const {
    std::string text(columns_, ' ');
    for (const PipelineSlice& slice : slices) {
      const std::size_t from = column(slice.begin_s), room = column(slice.end_s) - from;
      std::string cell = fmt::format("{}", slice.micro_batch);
      if (cell.size() > room) cell.clear();
      cell.resize(room, fill_of(slice));
      text.replace(from, room, cell);
    }
    return text;
  }

  static std::string dotted(const std::string& row) {
    std::string text;
    for (const char letter : row) text += letter == ' ' ? "·" : std::string(1, letter);
    return text;
  }

  // The time at every so many columns.
  std::string axis(std::size_t from, std::size_t count) const {
    std::string text;
    for (std::size_t at = 0; at < count; at += kTickColumns) {
      const std::string word = short_time(static_cast<double>(from + at) / scale_);
      if (at + word.size() > count) break;
      text.resize(at, ' ');
      text += word;
    }
    return text;
  }

  // Where ops differ by orders of magnitude, short ones vanish.
  static constexpr double kMostColumns = 4000;
  static constexpr std::size_t kTickColumns = 24;

  const ShownPipeline& shown_;
  double scale_ = 1;  // columns a second
  std::size_t columns_ = 0;
  std::vector<std::string> rows_;
};

std::string share_words(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string legend_of(const ShownPipeline& shown) {
  std::string text = "> forward";
  if (shown.kind == PipelineKind::zb_h1)
    text += ", b backward of the input, w of the weights";
  else if (shown.kind != PipelineKind::forward)
    text += ", < backward";
  if (shown.shape.virtual_stages > 1) text += "; ) ( the second virtual stage, ] [ the third …";
  return text + ", · bubble; the number is the micro-batch's";
}

}  // namespace

std::string draw_pipeline(const ShownPipeline& shown, std::size_t width) {
  return title_of(shown) + "\n" + PipelinePicture(shown).draw(width);
}

std::string pipeline_summary(const ShownPipeline& shown) {
  const auto& timeline = shown.timeline;
  std::string text =
      fmt::format("{}\nstep {} = compute {} + bubble {}: {} of the step, {} of compute\n",
                  legend_of(shown), short_time(timeline.step_s), short_time(timeline.compute_s()),
                  short_time(timeline.bubble_s()), share_words(timeline.bubble_share()),
                  share_words(timeline.bubble_ratio()));
  if (shown.closed_form_bubble_s)
    text += fmt::format("closed form, if messages took no time: bubble {}\n",
                        short_time(*shown.closed_form_bubble_s));
  text += fmt::format("keeps at most {} activations{} on stages 0 … {}; {} messages a step\n",
                      fmt::join(shown.report.activations, ", "),
                      shown.shape.virtual_stages > 1
                          ? fmt::format(" (each 1/{} of a stage's)", shown.shape.virtual_stages)
                          : "",
                      shown.shape.stages - 1, shown.report.messages);
  return text +
         "proved: inputs are there, every message meets its receive, nobody waits for ever\n";
}

std::string pipeline_table(const std::vector<ShownPipeline>& shown, std::size_t width) {
  const FittedTable table({{"schedule", "", 12, 100, TableColumn::Side::left, ""},
                           {"v", "", 3, 90},
                           {"step", "", 11, 100},
                           {"bubble", "", 11, 95},
                           {"of step", "", 9, 80},
                           {"of compute", "", 11, 60},
                           {"closed form", "", 12, 40},
                           {"kept", "", 6, 70},
                           {"messages", "", 9, 50}},
                          width);
  std::string text = fmt::format("{} stages, {} micro-batches\n{}\n", shown.front().shape.stages,
                                 shown.front().shape.micro_batches, table.names());
  for (const ShownPipeline& each : shown) {
    const auto& timeline = each.timeline;
    const int most =
        *std::max_element(each.report.activations.begin(), each.report.activations.end());
    const std::string cells[] = {
        std::string(to_string(each.kind)),
        std::to_string(each.shape.virtual_stages),
        short_time(timeline.step_s),
        short_time(timeline.bubble_s()),
        share_words(timeline.bubble_share()),
        share_words(timeline.bubble_ratio()),
        each.closed_form_bubble_s ? short_time(*each.closed_form_bubble_s) : "-",
        fmt::format("{:.4g}", static_cast<double>(most) / each.shape.virtual_stages),
        std::to_string(each.report.messages)};
    text += table.line(cells) + "\n";
  }
  if (const std::string left_out = table.left_out(); !left_out.empty())
    text += fmt::format("(--wide adds: {})\n", left_out);
  return text +
         "closed form: of the bubble, if messages took no time\n"
         "kept: activations of the fullest stage, in micro-batches\n";
}

}  // namespace tutti::tool
