// The still drawing of `tutti show --svg`: ranks side by side, time downwards.
//
//      0      1      2                0      1      2
//      ■ ■    ■ ■    ■ ■              ■ ■    ■ ■    ■ ■     what each rank has at first
//   0  o----->o----->        phase 0  [■]    [■]    [■]     message form: an arrow a message, coloured by
//      <-------------o       ══ meet ══════════════════     chunk, with its numbers; host form: what is
//   1  …                     phase 1  (+)<----o------o      shown, meetings across all ranks, and in each
//      ■ ■    ■ ■    ■ ■              ■ ■    ■ ■    ■ ■     phase a row for what a rank reads or writes
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "schedule/drawing.hpp"
#include "tool/show/host_sheet.hpp"
#include "tool/show/sheet.hpp"
#include "tool/show/show.hpp"
#include "tutti/shape.hpp"

namespace tutti::tool {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Program;

constexpr double kStepColumn = 64, kBandPadding = 8, kWireRow = 20, kTip = 8;
constexpr double kLetterOfLabel = 5.8;  // width of one, about

struct Message {
  std::uint32_t step;
  int from, to;
  std::vector<std::uint64_t> extents;  // in ascending order: which pieces of the whole message
};

Message message_of(const Program& program, const Op& op) {
  Message message{op.step, program.rank, op.peer, {}};
  if (!shape_of(program.collective).has_data()) return message;
  for (std::uint32_t i = 0; i < op.src.count; ++i)
    message.extents.push_back(schedule::extent_of(program, op.src.space, op.src.first + i));
  std::ranges::sort(message.extents);
  return message;
}

std::vector<Message> messages_of(const std::vector<Program>& programs) {
  std::vector<Message> messages;
  for (const Program& program : programs)
    for (const Op& op : program.ops)
      if (op.kind == OpKind::send) messages.push_back(message_of(program, op));
  std::stable_sort(messages.begin(), messages.end(),
                   [](const Message& a, const Message& b) { return a.step < b.step; });
  return messages;
}

// "3", "2–3", "0–1, 4": neighbours as a range.
std::vector<std::string> ranges_of(const std::vector<std::uint64_t>& ascending) {
  std::vector<std::string> ranges;
  for (auto first = ascending.begin(); first != ascending.end();) {
    auto last = first;
    while (last + 1 != ascending.end() && *(last + 1) == *last + 1) ++last;
    ranges.push_back(first == last ? fmt::format("{}", *first)
                                   : fmt::format("{}–{}", *first, *last));
    first = last + 1;
  }
  return ranges;
}

// As much of it as `letters` hold: "1, 3, 5 …".
std::string label_of(const Message& message, std::size_t letters) {
  std::string label;
  for (const std::string& range : ranges_of(message.extents)) {
    if (!label.empty() && label.size() + range.size() > letters) return label + " …";
    label += (label.empty() ? "" : ", ") + range;
  }
  return label;
}

// What a rank sends in a step, from the leftmost to the rightmost rank that has to do with it.
struct Wire {
  int from, first, last;
  std::vector<const Message*> messages;
};

std::vector<Wire> wires_of(std::span<const Message> messages) {
  std::map<int, Wire> wires;
  for (const Message& message : messages) {
    Wire& wire = wires.emplace(message.from, Wire{message.from, message.from, message.from, {}})
                     .first->second;
    wire.first = std::min(wire.first, message.to);
    wire.last = std::max(wire.last, message.to);
    wire.messages.push_back(&message);
  }
  std::vector<Wire> list;
  for (auto& [from, wire] : wires) list.push_back(std::move(wire));
  return list;
}

// Rows in which no two wires lie on each other; where one ends, the next may begin. Short ones first.
std::vector<std::vector<Wire>> rows_of(std::vector<Wire> wires) {
  std::ranges::stable_sort(wires, {}, [](const Wire& wire) { return wire.last - wire.first; });
  std::vector<std::vector<Wire>> rows;
  for (Wire& wire : wires) {
    const auto is_free = [&](const std::vector<Wire>& row) {
      return std::ranges::all_of(row, [&](const Wire& other) {
        return wire.last <= other.first || other.last <= wire.first;
      });
    };
    auto row = std::ranges::find_if(rows, is_free);
    if (row == rows.end()) row = rows.insert(rows.end(), std::vector<Wire>{});
    row->push_back(std::move(wire));
  }
  return rows;
}

const char* placement_words(const ShownCall& call) {
  return call.on_one_host ? "on one host, as there is no host form" : "between hosts";
}

class MessageDrawing {
 public:
  MessageDrawing(const ShownCall& call, const MessageForm& form)
      : messages_(messages_of(form.programs)),
        sheet_(title_of(call),
               fmt::format("message form {}, {}: {}, {}",
                           form.changes.empty() ? std::string(form.pass)
                                                : fmt::format("after {}", form.pass),
                           placement_words(call), count_of(steps(), "step"),
                           count_of(form.report.messages, "message")),
               {form.programs.begin(), form.programs.end()},
               schedule::extents_per_colour(form.programs.front()), kStepColumn) {}

  std::string draw() {
    sheet_.note(
        "An arrow is a message; its numbers say which chunks are in it, its colour says the first.");
    double y = sheet_.top();
    for (auto begin = messages_.begin(); begin != messages_.end();) {
      const auto end = std::find_if(begin, messages_.end(), [&](const Message& message) {
        return message.step != begin->step;
      });
      y += step({begin, end}, y);
      begin = end;
    }
    return sheet_.finish(y);
  }

 private:
  std::uint64_t steps() const {
    std::set<std::uint32_t> numbers;
    for (const Message& message : messages_) numbers.insert(message.step);
    return numbers.size();
  }

  // One band a step. Returns its height.
  double step(std::span<const Message> messages, double y) {
    const auto rows = rows_of(wires_of(messages));
    const double height = 2 * kBandPadding + kWireRow * static_cast<double>(rows.size());
    sheet_.band(y, height);
    sheet_.text(Sheet::kMargin, y + kBandPadding + kWireRow / 2 + 6, "muted",
                fmt::format("step {}", messages[0].step));
    double middle = y + kBandPadding + kWireRow / 2 + 4;
    for (const auto& row : rows) {
      for (const Wire& wire : row) draw(wire, middle);
      middle += kWireRow;
    }
    return height;
  }

  double x(int rank) const { return sheet_.x(static_cast<std::size_t>(rank)); }

  // A piece to the left of the sender and one to the right; heads where receivers are.
  void draw(const Wire& wire, double y) {
    const Message* first = wire.messages.front();
    const bool alike = std::ranges::all_of(wire.messages, [&](const Message* message) {
      return colour_of(*message) == colour_of(*first);
    });
    const std::string stroke = alike ? fmt::format(" stroke=\"{}\"", colour_of(*first)) : "";
    sheet_.add(fmt::format(
        "<g class=\"wires\"><line class=\"{}\"{} x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" "
        "y2=\"{:.1f}\"/>\n",
        alike ? "arrow" : "wire", stroke, x(wire.first) + (wire.first < wire.from ? kTip : 0), y,
        x(wire.last) - (wire.last > wire.from ? kTip : 0), y));
    for (const Message* message : wire.messages) draw(*message, wire.messages.size() == 1, y);
    sheet_.add(fmt::format("<circle class=\"knob\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/></g>\n",
                           x(wire.from), y));
  }

  // The label of a lone message stands near its sender, of several each near its receiver.
  void draw(const Message& message, bool is_alone, double y) {
    const double side = message.to > message.from ? 1 : -1, tip = x(message.to) - 3 * side;
    const std::string chunks = fmt::format("{}", fmt::join(ranges_of(message.extents), ", "));
    sheet_.add(
        fmt::format("<g class=\"message\"><title>{} → {}{}{}</title>"
                    "<path fill=\"{}\" d=\"M{:.1f} {:.1f}l{} -4.5v9z\"/>\n",
                    message.from, message.to, chunks.empty() ? "" : ": ", chunks,
                    colour_of(message), tip, y, -kTip * side));
    const double end = is_alone ? x(message.from) + side * sheet_.column() / 2
                                : x(message.to) - side * sheet_.column() / 2;
    if (!chunks.empty()) {
      const double room = (sheet_.column() - 24) / kLetterOfLabel;
      sheet_.text(end, y - 4, "label", label_of(message, static_cast<std::size_t>(room)));
    }
    sheet_.add("</g>\n");
  }

  const char* colour_of(const Message& message) const {
    return sheet_.colour(message.extents.empty() ? 0 : message.extents.front());
  }

  std::vector<Message> messages_;
  Sheet sheet_;
};

}  // namespace

Result<std::string> make_svg(const ShownCall& call) {
  if (call.host) return draw_host_form(call);
  const auto forms = message_forms(call.algorithm, call.request);
  if (!forms.ok()) return forms.status();
  return MessageDrawing(call, forms->back()).draw();
}

}  // namespace tutti::tool
