// The still drawing of `tutti show --svg`: ranks side by side, time downwards, one arrow a message.
//
//      0      1      2        what each rank has at first
//      ■ ■    ■ ■    ■ ■
//   0  o----->               step 0: coloured by chunk, labelled with the chunks' numbers
//             o----->
//   1  …
//      ■ ■    ■ ■    ■ ■      what the collective promises at last
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "schedule/drawing.hpp"
#include "tool/show/show.hpp"
#include "tutti/shape.hpp"

namespace tutti::tool {
namespace {

using schedule::Cell;
using schedule::Cells;
using schedule::Op;
using schedule::OpKind;
using schedule::Program;
using schedule::Space;

constexpr double kLeft = 64, kTop = 84, kCellsHeight = 30, kBandPadding = 14;
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
  @media (prefers-color-scheme:dark){ .paper{fill:#12151a} .life{stroke:#414856}
    .band{fill:#1a1e25} text{fill:#e9e7e1} .muted{fill:#a0a8b4} .chip{stroke:#12151a}
    .label{stroke:#12151a} .empty{stroke:#586070} .knob{fill:#e9e7e1} }
</style>
)";

struct Message {
  std::uint32_t step;
  int from, to;
  std::uint64_t colour;
  std::string label;
};

// "3", "2–3": which pieces of the whole message.
std::string label_of(const Program& program, const schedule::Region& region) {
  if (region.count == 0 || !shape_of(program.collective).has_data()) return {};
  const auto first = schedule::extent_of(program, region.space, region.first);
  const auto last = schedule::extent_of(program, region.space, region.first + region.count - 1);
  return first == last ? fmt::format("{}", first) : fmt::format("{}–{}", first, last);
}

std::vector<Message> messages_of(const std::vector<Program>& programs) {
  std::vector<Message> messages;
  for (const Program& program : programs)
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::send) continue;
      const auto extent =
          op.src.count == 0 ? 0 : schedule::extent_of(program, op.src.space, op.src.first);
      messages.push_back({op.step, program.rank, op.peer,
                          extent / schedule::extents_per_colour(program) % kColours,
                          label_of(program, op.src)});
    }
  std::stable_sort(messages.begin(), messages.end(),
                   [](const Message& a, const Message& b) { return a.step < b.step; });
  return messages;
}

class Sheet {
 public:
  explicit Sheet(const Shown& shown) : shown_(shown), messages_(messages_of(shown.programs)) {
    std::size_t most = 0;
    for (const Program& program : shown.programs) {
      cells_.emplace_back(program);
      std::size_t visible = 0;
      for (const Cell& cell : cells_.back().all()) visible += cell.is_callers();
      most = std::max(most, visible);
    }
    column_ = std::clamp(static_cast<double>(most) * 14 + 26, 84.0, 260.0);
    chip_ = std::min(14.0, (column_ - 14) / static_cast<double>(std::max<std::size_t>(most, 1)));
  }

  std::string draw() {
    title();
    for (std::size_t rank = 0; rank < cells_.size(); ++rank) {
      text(x(rank), kTop - 24, "rank", fmt::format("{}", rank));
      row_of_cells(rank, kTop - 14, false);
    }
    double y = kTop + kCellsHeight - 10;
    const double first = y;
    bands(y);
    for (std::size_t rank = 0; rank < cells_.size(); ++rank) {
      lines_ +=
          fmt::format(R"(<line class="life" x1="{0:.1f}" y1="{1:.1f}" x2="{0:.1f}" y2="{2:.1f}"/>)"
                      "\n",
                      x(rank), first, y);
      row_of_cells(rank, y + 6, true);
    }
    return page(y + kCellsHeight + 8);
  }

 private:
  double x(std::size_t rank) const { return kLeft + (static_cast<double>(rank) + 0.5) * column_; }
  void text(double x, double y, const char* kind, const std::string& words) {
    body_ +=
        fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", kind, x, y, words);
  }

  void title() {
    const Program& model = shown_.programs.front();
    body_ += fmt::format(
        "<text class=\"title\" x=\"16\" y=\"28\">{} by {}, {}<tspan class=\"muted\" "
        "font-weight=\"400\" font-size=\"12\" dx=\"12\">{}, {}</tspan></text>\n",
        to_string(model.collective), to_string(model.algorithm),
        count_of(shown_.programs.size(), "rank"), count_of(steps(), "step"),
        count_of(shown_.report.messages, "message"));
  }

  std::uint64_t steps() const {
    std::set<std::uint32_t> numbers;
    for (const Message& message : messages_) numbers.insert(message.step);
    return numbers.size();
  }

  // Empty frames for what is not there yet, or not promised.
  void row_of_cells(std::size_t rank, double y, bool at_last) {
    const auto per_colour = schedule::extents_per_colour(shown_.programs[rank]);
    std::vector<const Cell*> row;
    for (const Cell& cell : cells_[rank].all())
      if (cell.is_callers() && (!at_last || cell.goal.count > 0)) row.push_back(&cell);
    double left = x(rank) - chip_ * static_cast<double>(row.size()) / 2;
    for (const Cell* cell : row) {
      const bool full = at_last || cell->start.count > 0;
      const std::string kind = full ? fmt::format("class=\"chip\" fill=\"{}\"",
                                                  kPalette[cell->extent / per_colour % kColours])
                                    : "class=\"empty\"";
      body_ += fmt::format(R"(<rect {} x="{:.1f}" y="{:.1f}" width="{:.1f}" height="12" rx="2"/>)"
                           "\n",
                           kind, left + 0.5, y, chip_ - 1);
      left += chip_;
    }
  }

  // One band a step; in it every rank's messages below each other.
  void bands(double& y) {
    bool shaded = false;
    for (auto begin = messages_.begin(); begin != messages_.end();) {
      const auto end = std::find_if(begin, messages_.end(), [&](const Message& message) {
        return message.step != begin->step;
      });
      std::map<int, int> sent;
      for (auto it = begin; it != end; ++it) ++sent[it->from];
      int most = 1;
      for (const auto& [rank, count] : sent) most = std::max(most, count);
      const double height = 2 * kBandPadding + 22 + 12 * (most - 1);
      if ((shaded = !shaded))
        lines_ +=
            fmt::format(R"(<rect class="band" x="0" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)"
                        "\n",
                        y, width(), height);
      text(16, y + height / 2 + 4, "muted", fmt::format("step {}", begin->step));
      sent.clear();
      for (; begin != end; ++begin) arrow(*begin, y + kBandPadding + 12 * sent[begin->from]++);
      y += height;
    }
  }

  void arrow(const Message& message, double y) {
    const double from = x(static_cast<std::size_t>(message.from));
    const double to = x(static_cast<std::size_t>(message.to));
    const double side = to > from ? 1 : -1, drop = 18;
    // Long arrows bow, so that they do not lie on the short ones.
    const double bow = std::min(16.0, std::abs(to - from) / column_ * 3);
    body_ += fmt::format(
        "<g class=\"message\" fill=\"{0}\" stroke=\"{0}\"><path class=\"arrow\" "
        "d=\"M{1:.1f} {2:.1f} Q{3:.1f} {4:.1f} {5:.1f} {6:.1f}\"/>"
        "<path stroke=\"none\" d=\"M{7:.1f} {8:.1f} l{9:.1f} -4.5 l1 7.5z\"/>"
        "<circle stroke=\"none\" cx=\"{1:.1f}\" cy=\"{2:.1f}\" r=\"2.6\"/></g>\n",
        kPalette[message.colour], from, y, (from + to) / 2, y + drop / 2 - bow, to - 4 * side,
        y + drop - 1, to, y + drop, -8 * side);
    // Near the sender, where arrows are still apart.
    const double way = std::min(0.35, column_ * 0.35 / std::abs(to - from));
    if (!message.label.empty())
      text(from + (to - from) * way, y + drop * way - 2 * bow * way * (1 - way) - 2, "label",
           message.label);
  }

  double width() const { return kLeft + column_ * static_cast<double>(cells_.size()) + 16; }
  std::string page(double height) const {
    const Program& model = shown_.programs.front();
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" role=\"img\" aria-label=\"{2} by {3} on {4} ranks, step by step\">\n"
        "{5}<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{6}{7}</svg>\n",
        std::max(width(), 380.0), height, to_string(model.collective), to_string(model.algorithm),
        shown_.programs.size(), kStyle, lines_, body_);
  }

  const Shown& shown_;
  std::vector<Message> messages_;
  std::vector<Cells> cells_;
  double column_ = 0, chip_ = 0;
  std::string lines_;  // behind everything else
  std::string body_;
};

}  // namespace

std::string make_svg(const Shown& shown) { return Sheet(shown).draw(); }

}  // namespace tutti::tool
