// A host form, still: phases as bands, meetings as lines across all ranks. What a rank shows, and what
// its fold has made, are boxes in its column. Whatever it does with the memory of others is a row of its
// own, so that nothing crosses:
//
//               rank 0     rank 1     rank 2
//   0 folds      (+)<---------■----------■       reads what 1 and 2 show (squares: windows, results;
//   1 puts        <-----------o---------->       discs: the buffers themselves), writes into 0 and 2
#include "tool/show/host_sheet.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "schedule/host/text.hpp"
#include "tool/show/sheet.hpp"

namespace tutti::tool {
namespace {

using schedule::Cell;
using schedule::HostAction;
using schedule::HostFold;
using schedule::HostForm;
using schedule::HostMove;
using schedule::HostPhase;
using schedule::kLocal;
using schedule::Spot;

constexpr double kPhaseColumn = 166, kRowLabel = 78, kRow = 24, kPadding = 8, kMeeting = 26;
constexpr double kFoldRadius = 7;

// One end of what a rank does with a peer's memory.
struct Touch {
  int peer = 0;
  std::uint64_t extent = 0;
  bool is_slot = false;
};

// What a rank does with the memory of others: it reads, or it writes.
struct Row {
  int rank = 0;
  std::string label{};
  bool reads = true;
  bool folds = false;
  std::vector<Touch> touches{};
  std::string words{};  // every line of the form that is in it
};

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

class HostDrawing {
 public:
  HostDrawing(const ShownCall& call, const HostVariant& variant, const HostUse& use)
      : forms_(variant.ranks),
        sheet_(
            title_of(call),
            fmt::format("host form, {}: {}", use.words, count_of(variant.report.steps, "meeting")),
            {forms_.begin(), forms_.end()}, schedule::extents_per_colour(forms_.front().frame),
            kPhaseColumn) {}

  std::string draw() {
    add_notes();
    double y = sheet_.top();
    const std::size_t phases = forms_.front().phases.size();
    for (std::size_t phase = 0; phase < phases; ++phase) {
      if (phase > 0) y = meeting(y);
      y = draw_phase(phase, y);
    }
    return sheet_.finish(y);
  }

 private:
  bool has(auto matches) const {
    return std::ranges::any_of(
        forms_, [&](const HostForm& form) { return std::ranges::any_of(form.phases, matches); });
  }
  void add_notes() {
    const bool windows =
        has([](const HostPhase& phase) { return fills(phase, Cell::Where::window); });
    const bool folds = has([](const HostPhase& phase) { return phase.fold.has_value(); });
    const bool moves = has([](const HostPhase& phase) { return !phase.moves.empty(); });
    if (windows) sheet_.note("A window is memory in which a rank shows chunks to the others.");
    if (folds || moves)
      sheet_.note(
          "Arrows point to where data goes; ■ lies in a window or result, ● in the caller's "
          "buffer.");
    sheet_.note(fmt::format("{}Nobody goes on from a meeting before all have come to it.",
                            folds ? "⊕ combines what a rank reads. " : ""));
  }

  double draw_phase(std::size_t phase, double y) {
    const double top = y;
    y += kPadding;
    y = boxes(phase, Cell::Where::window, "window", "show", y);
    y = copies(phase, y);
    for (const HostForm& form : forms_) y = moves(form, form.phases[phase], HostAction::take, y);
    for (const HostForm& form : forms_) y = moves(form, form.phases[phase], HostAction::give, y);
    for (const HostForm& form : forms_)
      if (form.phases[phase].fold) y = fold(form, *form.phases[phase].fold, y);
    y = boxes(phase, Cell::Where::result, "result", "keep", y);
    if (y == top + kPadding) {
      sheet_.text(kRowLabel, y + kRow / 2 + 4, "muted",
                  phase == 0 ? "ranks arrive" : "all is done");
      y += kRow;
    }
    sheet_.text(Sheet::kMargin, top + kPadding + kRow / 2 + 4, "muted",
                fmt::format("phase {}", phase));
    y += kPadding;
    sheet_.band(top, y - top);
    return y;
  }

  double meeting(double y) {
    const double middle = y + kMeeting / 2,
                 last = sheet_.x(forms_.size() - 1) + sheet_.column() / 2;
    sheet_.add(fmt::format(R"(<line class="meet" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)"
                           "\n",
                           kPhaseColumn - 8, middle, last - 6, middle));
    sheet_.text(Sheet::kMargin, middle + 4, "meeting", "all meet");
    return y + kMeeting;
  }

  // The rank fills such slots in this phase.
  static bool fills(const HostPhase& phase, Cell::Where slots) {
    if (slots == Cell::Where::result) return phase.fold && phase.fold->keeps_result;
    return std::ranges::any_of(
        phase.moves, [](const HostMove& move) { return move.action == HostAction::show; });
  }
  // "all show", "2 shows", "some show".
  std::string who(std::size_t phase, Cell::Where slots, std::string_view verb) const {
    std::vector<int> ranks;
    for (const HostForm& form : forms_)
      if (fills(form.phases[phase], slots)) ranks.push_back(form.frame.rank);
    if (ranks.empty()) return {};
    if (ranks.size() == 1) return fmt::format("{} {}s", ranks.front(), verb);
    return fmt::format("{} {}", ranks.size() == forms_.size() ? "all" : "some", verb);
  }
  double boxes(std::size_t phase, Cell::Where slots, const char* name, const char* verb, double y) {
    const std::string label = who(phase, slots, verb);
    if (label.empty()) return y;
    sheet_.text(kRowLabel, y + kRow / 2 + 4, "muted", label);
    for (std::size_t rank = 0; rank < forms_.size(); ++rank) {
      const auto row = sheet_.cells(rank, [&](const Cell& cell) { return cell.where == slots; });
      if (row.empty()) continue;
      const double half = std::max(7.0 * static_cast<double>(row.size()), 24.0) + 5;
      sheet_.add(fmt::format(
          R"(<rect class="slots" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="34" rx="5"/>)"
          "\n",
          sheet_.x(rank) - half, y, 2 * half));
      sheet_.text(sheet_.x(rank), y + 12, "label", name);
      sheet_.chips(rank, y + 17, row, true);
    }
    return y + 34;
  }

  // Within a rank: no arrow leaves its column.
  double copies(std::size_t phase, double y) {
    bool any = false;
    for (const HostForm& form : forms_) {
      const auto& moves = form.phases[phase].moves;
      const auto count = std::ranges::count_if(
          moves, [](const HostMove& move) { return move.action == HostAction::copy; });
      if (count == 0) continue;
      any = true;
      sheet_.text(sheet_.x(at(form.frame.rank)), y + 14, "label",
                  count == 1 ? "copies its own" : fmt::format("copies {}", count));
    }
    return any ? y + kRow : y;
  }

  double moves(const HostForm& form, const HostPhase& phase, HostAction action, double y) {
    Row row{.rank = form.frame.rank, .reads = action == HostAction::take};
    double share = 1;
    for (const HostMove& move : phase.moves) {
      if (move.action != action) continue;
      const int owner = row.reads ? move.peer : row.rank;
      row.touches.push_back({move.peer, extent_of(owner, move.from), move.from.is_slot()});
      row.words += schedule::print(move) + "\n";
      share = row.reads ? 1 - move.givers_share : move.givers_share;
    }
    if (row.touches.empty()) return y;
    row.label = fmt::format("{} {}{}", row.rank, row.reads ? "takes" : "gives",
                            share < 1 ? fmt::format(" {:.3g}", share) : "");
    return draw(row, y);
  }

  double fold(const HostForm& form, const HostFold& fold, double y) {
    const int rank = form.frame.rank;
    const std::string words = schedule::print(fold);
    Row read{.rank = rank, .label = fmt::format("{} folds", rank), .folds = true, .words = words};
    Row written{
        .rank = rank, .label = fmt::format("{} puts", rank), .reads = false, .words = words};
    for (const HostFold::Operand& operand : fold.operands)
      if (operand.peer != kLocal)
        read.touches.push_back(
            {operand.peer, extent_of(operand.peer, operand.from), operand.from.is_slot()});
    for (const HostFold::Put& put : fold.puts)
      written.touches.push_back({put.peer, extent_of(put.peer, put.to), false});
    y = draw(read, y);
    return written.touches.empty() ? y : draw(written, y);
  }

  // A wire from the rank to all that it touches: what is read flows towards it, what is written away.
  double draw(const Row& row, double y) {
    const double own = sheet_.x(at(row.rank)), middle = y + kRow / 2;
    double first = own, last = own;
    for (const Touch& touch : row.touches) {
      first = std::min(first, sheet_.x(at(touch.peer)));
      last = std::max(last, sheet_.x(at(touch.peer)));
    }
    sheet_.text(kRowLabel, middle + 4, "muted", row.label);
    sheet_.add(
        fmt::format("<g><title>rank {}: {}</title><line class=\"wire\" x1=\"{:.1f}\" "
                    "y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
                    row.rank, row.words, first, middle, last, middle));
    const double gap = row.folds ? kFoldRadius : 0;
    if (row.reads && first < own) head(own - gap, middle, 1, "class=\"knob\"");
    if (row.reads && last > own) head(own + gap, middle, -1, "class=\"knob\"");
    if (row.folds) plus(own, middle);
    if (!row.reads) disc(own, middle, row.touches.front().extent, false);
    for (const Touch& touch : row.touches) draw(row, touch, middle);
    sheet_.add("</g>\n");
    return y + kRow;
  }

  void draw(const Row& row, const Touch& touch, double y) {
    const double there = sheet_.x(at(touch.peer));
    const bool rightwards = touch.peer > row.rank;
    sheet_.add("<g class=\"touch\">");
    if (row.reads)
      disc(there, y, touch.extent, touch.is_slot);
    else
      head(there, y, rightwards ? 1 : -1, fmt::format("fill=\"{}\"", sheet_.colour(touch.extent)));
    sheet_.text(there + (row.reads || !rightwards ? 11 : -13), y - 4, "label",
                fmt::format("{}", touch.extent));
    sheet_.add("</g>\n");
  }

  void plus(double x, double y) {
    sheet_.add(
        fmt::format("<circle class=\"fold\" cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"{2}\"/>"
                    "<path class=\"plus\" d=\"M{3:.1f} {1:.1f}h7M{0:.1f} {4:.1f}v7\"/>\n",
                    x, y, kFoldRadius, x - 3.5, y - 3.5));
  }
  void disc(double x, double y, std::uint64_t extent, bool is_slot) {
    const char* fill = sheet_.colour(extent);
    sheet_.add(
        is_slot
            ? fmt::format(
                  R"(<rect x="{:.1f}" y="{:.1f}" width="9" height="9" rx="1.5" fill="{}"/>)",
                  x - 4.5, y - 4.5, fill)
            : fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4.5" fill="{}"/>)", x, y, fill));
  }
  // Its point at x; `way` 1: to the right.
  void head(double x, double y, int way, const std::string& fill) {
    sheet_.add(fmt::format(R"(<path {} d="M{:.1f} {:.1f}l{} -5v10z"/>)", fill, x, y, -9 * way));
  }

  std::uint64_t extent_of(int rank, const Spot& spot) const {
    const schedule::Cells& cells = sheet_.cells_of(at(rank));
    return cells.all()[cells.index(spot)].extent;
  }

  const std::vector<HostForm>& forms_;
  Sheet sheet_;
};

}  // namespace

std::string draw_host_form(const ShownCall& call) {
  const HostView& view = *call.host;
  const bool crowded = call.is_crowded();
  const schedule::Reach reach =
      view.reach(view.way(call.bytes, crowded), call.memory.value_or(CallMemory::ordinary));
  return HostDrawing(call, *view.find(reach), view.use(reach, call.bytes, crowded)).draw();
}

}  // namespace tutti::tool
