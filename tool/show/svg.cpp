// The still drawing of `tutti show --svg`: ranks side by side, time downwards.
//
//      0      1      2                0      1      2
//      ■ ■    ■ ■    ■ ■              ■ ■    ■ ■    ■ ■     what each rank has at first
//   0  o----->               phase 0  [■]    [■]    [■]     message form: an arrow a message, coloured by
//             o----->        ══ meet ══════════════════     chunk, with its number; host form: what is
//   1  …                     phase 1  (+)<----o------o      shown, meetings across all ranks, and in each
//      ■ ■    ■ ■    ■ ■              ■ ■    ■ ■    ■ ■     phase a row for what a rank reads or writes
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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

constexpr double kStepColumn = 64, kBandPadding = 14;

struct Message {
  std::uint32_t step;
  int from, to;
  std::uint64_t extent;
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
      messages.push_back({op.step, program.rank, op.peer, extent, label_of(program, op.src)});
    }
  std::stable_sort(messages.begin(), messages.end(),
                   [](const Message& a, const Message& b) { return a.step < b.step; });
  return messages;
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
    sheet_.note("An arrow is a message; colour and number say which chunks are in it.");
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

  // One band a step; in it every rank's messages below each other. Returns its height.
  double step(std::span<const Message> messages, double y) {
    std::map<int, int> sent;
    int most = 1;
    for (const Message& message : messages) most = std::max(most, ++sent[message.from]);
    const double height = 2 * kBandPadding + 22 + 12 * (most - 1);
    sheet_.band(y, height);
    sheet_.text(Sheet::kMargin, y + height / 2 + 4, "muted",
                fmt::format("step {}", messages[0].step));
    sent.clear();
    for (const Message& message : messages)
      arrow(message, y + kBandPadding + 12 * sent[message.from]++);
    return height;
  }

  void arrow(const Message& message, double y) {
    const double from = sheet_.x(static_cast<std::size_t>(message.from));
    const double to = sheet_.x(static_cast<std::size_t>(message.to));
    const double side = to > from ? 1 : -1, drop = 18, column = sheet_.column();
    // Long arrows bow, so that they do not lie on the short ones.
    const double bow = std::min(16.0, std::abs(to - from) / column * 3);
    sheet_.add(
        fmt::format("<g class=\"message\" fill=\"{0}\" stroke=\"{0}\"><path class=\"arrow\" "
                    "d=\"M{1:.1f} {2:.1f} Q{3:.1f} {4:.1f} {5:.1f} {6:.1f}\"/>"
                    "<path stroke=\"none\" d=\"M{7:.1f} {8:.1f} l{9:.1f} -4.5 l1 7.5z\"/>"
                    "<circle stroke=\"none\" cx=\"{1:.1f}\" cy=\"{2:.1f}\" r=\"2.6\"/></g>\n",
                    sheet_.colour(message.extent), from, y, (from + to) / 2, y + drop / 2 - bow,
                    to - 4 * side, y + drop - 1, to, y + drop, -8 * side));
    // Near the sender, where arrows are still apart.
    const double way = std::min(0.35, column * 0.35 / std::abs(to - from));
    if (!message.label.empty())
      sheet_.text(from + (to - from) * way, y + drop * way - 2 * bow * way * (1 - way) - 2, "label",
                  message.label);
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
