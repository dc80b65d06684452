#include "tool/show/sheet.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::tool {
namespace {

using schedule::Cell;

constexpr double kHead = 106;  // title, remark, ranks, cells
constexpr double kFoot = 46;
constexpr double kLetter = 6.4;  // width of one, about; in titles more
constexpr double kNote = 17;     // height of a line
constexpr int kColours = 16;

// As in web/style.css. Written out as plain fills and strokes, which every renderer understands.
constexpr const char* kPalette[kColours] = {
    "#3b6fd4", "#e07b28", "#2e9e6b", "#c8434f", "#8a62c9", "#b08f1a", "#2897b5", "#cf5c9c",
    "#6c8f2c", "#5560c9", "#c06a4a", "#1f8f8f", "#a84fb8", "#8d7a53", "#5f9bd8", "#7b8794"};

constexpr const char* kStyle = R"(<style>
  .paper{fill:#fff} .life{stroke:#c9c5ba;stroke-width:1.5} .band{fill:#f4f2ec}
  text{font:12px system-ui,"DejaVu Sans",sans-serif;fill:#1b1f27} .muted{fill:#59616d}
  .title{font-size:16px;font-weight:600} .rank{font-weight:600;text-anchor:middle}
  .chip{stroke:#fff;stroke-width:1} .empty{fill:none;stroke:#a8a498;stroke-dasharray:2 2}
  .label{font-size:10px;text-anchor:middle;paint-order:stroke;stroke:#fff;stroke-width:3px}
  .arrow{fill:none;stroke-width:1.8} .knob{fill:#1b1f27}
  .meet{stroke:#2a52be;stroke-width:3} .meeting{fill:#2a52be;font-weight:600}
  .slots{fill:#fff;stroke:#a8a498} .wire{stroke:#a8a498;stroke-width:1.6}
  .fold{fill:#fff;stroke:#1b1f27;stroke-width:1.4} .plus{stroke:#1b1f27;stroke-width:1.6}
  @media (prefers-color-scheme:dark){ .paper{fill:#12151a} .life{stroke:#414856}
    .band{fill:#1a1e25} text{fill:#e9e7e1} .muted{fill:#a0a8b4} .chip{stroke:#12151a}
    .label{stroke:#12151a} .empty{stroke:#586070} .knob{fill:#e9e7e1}
    .meet{stroke:#86a8ff} .meeting{fill:#86a8ff} .slots{fill:#12151a;stroke:#586070}
    .wire{stroke:#586070} .fold{fill:#12151a;stroke:#e9e7e1} .plus{stroke:#e9e7e1} }
</style>
)";

}  // namespace

Sheet::Sheet(std::string title, std::string remark, std::vector<schedule::Cells> cells,
             std::uint64_t extents_per_colour, double left)
    : title_(std::move(title)),
      remark_(std::move(remark)),
      cells_(std::move(cells)),
      extents_per_colour_(extents_per_colour),
      left_(left),
      top_(kHead) {
  std::size_t most = 1;
  for (std::size_t rank = 0; rank < cells_.size(); ++rank)
    most = std::max(most,
                    this->cells(rank, [](const Cell& cell) { return cell.is_callers(); }).size());
  column_ = std::clamp(static_cast<double>(most) * 14 + 26, 84.0, 260.0);
  chip_ = std::min(14.0, (column_ - 14) / static_cast<double>(most));
  width_ = std::max({left_ + column_ * static_cast<double>(cells_.size()) + kMargin,
                     2 * kMargin + 8.6 * static_cast<double>(title_.size()),
                     2 * kMargin + kLetter * static_cast<double>(remark_.size())});
}

void Sheet::note(const std::string& words) {
  notes_.push_back(words);
  width_ = std::max(width_, 2 * kMargin + kLetter * static_cast<double>(words.size()));
}

const char* Sheet::colour(std::uint64_t extent) const {
  return kPalette[extent / extents_per_colour_ % kColours];
}

void Sheet::text(double x, double y, std::string_view kind, std::string_view words) {
  body_ +=
      fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", kind, x, y, words);
}

void Sheet::band(double y, double height) {
  if ((shaded_ = !shaded_))
    behind_ += fmt::format(R"(<rect class="band" x="0" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)"
                           "\n",
                           y, width_, height);
}

void Sheet::chips(std::size_t rank, double y, const std::vector<const Cell*>& row, bool full) {
  double left = x(rank) - chip_ * static_cast<double>(row.size()) / 2;
  for (const Cell* cell : row) {
    const std::string kind = full || cell->start.count > 0
                                 ? fmt::format("class=\"chip\" fill=\"{}\"", colour(cell->extent))
                                 : "class=\"empty\"";
    body_ += fmt::format(R"(<rect {} x="{:.1f}" y="{:.1f}" width="{:.1f}" height="12" rx="2"/>)"
                         "\n",
                         kind, left + 0.5, y, chip_ - 1);
    left += chip_;
  }
}

std::string Sheet::finish(double bottom) {
  const auto is_promised = [](const Cell& cell) {
    return cell.is_callers() && cell.goal.count > 0;
  };
  text(kMargin, 28, "title", title_);
  text(kMargin, 47, "muted", remark_);
  const bool has_data =
      std::ranges::any_of(cells_, [](const auto& each) { return !each.all().empty(); });
  if (has_data) text(kMargin, kHead - 18, "muted", "at first");
  if (has_data) text(kMargin, bottom + 18, "muted", "at last");
  for (std::size_t rank = 0; rank < cells_.size(); ++rank) {
    behind_ +=
        fmt::format(R"(<line class="life" x1="{0:.1f}" y1="{1:.1f}" x2="{0:.1f}" y2="{2:.1f}"/>)"
                    "\n",
                    x(rank), kHead - 8, bottom + 4);
    text(x(rank), kHead - 38, "rank", fmt::format("rank {}", rank));
    chips(rank, kHead - 28, cells(rank, [](const Cell& cell) { return cell.is_callers(); }), false);
    chips(rank, bottom + 8, cells(rank, is_promised), true);
  }
  double end = bottom + kFoot;
  for (const std::string& words : notes_) {
    text(kMargin, end, "muted", words);
    end += kNote;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}, step by step: {3}\">\n"
      "{4}<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{5}{6}</svg>\n",
      width_, end, title_, remark_, kStyle, behind_, body_);
}

}  // namespace tutti::tool
