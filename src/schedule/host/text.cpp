#include "schedule/host/text.hpp"

#include <fmt/format.h>

#include <iterator>

namespace tutti::schedule {
namespace {

using Out = std::back_insert_iterator<std::string>;

std::string words(const Spot& spot) {
  return fmt::format("{}[{}]", to_string(spot.where), spot.index);
}
// A place in some rank's memory: "1:window[0]", or without the rank where it is the own one.
std::string words(int peer, const Spot& spot) {
  return peer == kLocal ? words(spot) : fmt::format("{}:{}", peer, words(spot));
}
std::string share(double part) { return part < 1 ? fmt::format("{:.4g} of ", part) : ""; }

void put_json_spot(Out out, std::string_view key, const Spot& spot) {
  fmt::format_to(out, ",\"{}\":[\"{}\",{}]", key, to_string(spot.where), spot.index);
}

void put_json_move(Out out, const HostMove& move) {
  fmt::format_to(out, "{{\"action\":\"{}\"", to_string(move.action));
  put_json_spot(out, "from", move.from);
  put_json_spot(out, "to", move.to);
  switch (move.action) {
    case HostAction::take:
      fmt::format_to(out, ",\"peer\":{},\"share\":{}", move.peer, 1 - move.givers_share);
      break;
    case HostAction::give:
      fmt::format_to(out, ",\"peer\":{},\"share\":{}", move.peer, move.givers_share);
      break;
    case HostAction::show:
    case HostAction::copy: break;
  }
  fmt::format_to(out, "}}");
}

void put_json_fold(Out out, const HostFold& fold) {
  fmt::format_to(out, "{{\"finish\":{}", fold.finish);
  if (fold.balanced) fmt::format_to(out, ",\"balanced\":true");
  put_json_spot(out, "to", fold.to);
  fmt::format_to(out, ",\"keeps_result\":{},\"operands\":[", fold.keeps_result);
  for (std::size_t i = 0; i < fold.operands.size(); ++i) {
    const HostFold::Operand& operand = fold.operands[i];
    fmt::format_to(out, "{}{{\"raw\":{}", i > 0 ? "," : "", operand.raw);
    if (operand.peer != kLocal) fmt::format_to(out, ",\"peer\":{}", operand.peer);
    put_json_spot(out, "from", operand.from);
    fmt::format_to(out, "}}");
  }
  fmt::format_to(out, "],\"puts\":[");
  for (std::size_t i = 0; i < fold.puts.size(); ++i) {
    fmt::format_to(out, "{}{{\"peer\":{}", i > 0 ? "," : "", fold.puts[i].peer);
    put_json_spot(out, "to", fold.puts[i].to);
    fmt::format_to(out, "}}");
  }
  fmt::format_to(out, "]}}");
}

}  // namespace

std::string print(const HostMove& move) {
  switch (move.action) {
    case HostAction::show: return fmt::format("show {} -> {}", words(move.from), words(move.to));
    case HostAction::copy: return fmt::format("copy {} = {}", words(move.to), words(move.from));
    case HostAction::take:
      return fmt::format("take {}{} = {}", share(1 - move.givers_share), words(move.to),
                         words(move.peer, move.from));
    case HostAction::give:
      return fmt::format("give {}{} -> {}", share(move.givers_share), words(move.from),
                         words(move.peer, move.to));
  }
  return {};
}

std::string print(const HostFold& fold) {
  std::string text = fmt::format("fold {} =", words(fold.to));
  for (std::size_t i = 0; i < fold.operands.size(); ++i) {
    const HostFold::Operand& operand = fold.operands[i];
    text += fmt::format("{} {}{}", i > 0 ? " +" : "", operand.raw ? "raw " : "",
                        words(operand.peer, operand.from));
  }
  if (fold.balanced) text += " balanced";
  if (fold.finish) text += " finish";
  const char* arrow = " -> ";
  if (fold.keeps_result) {
    text += fmt::format("{}{}", arrow, words({Spot::Where::result, 0}));
    arrow = ", ";
  }
  for (const HostFold::Put& put : fold.puts) {
    text += fmt::format("{}{}", arrow, words(put.peer, put.to));
    arrow = ", ";
  }
  return text;
}

std::string print(const HostForm& form) {
  const Program& frame = form.frame;
  std::string text =
      fmt::format("host {} {} rank {} of {} root {} cut {}{} reach {}\n",
                  to_string(frame.collective), to_string(frame.algorithm), frame.rank, frame.size,
                  frame.root, frame.cut, frame.in_place ? " in_place" : "", to_string(form.reach));
  for (std::size_t p = 0; p < form.phases.size(); ++p) {
    if (p > 0) text += "  meet\n";
    text += fmt::format("  phase {}\n", p);
    for (const HostMove& move : form.phases[p].moves) text += "    " + print(move) + "\n";
    if (form.phases[p].fold) text += "    " + print(*form.phases[p].fold) + "\n";
  }
  return text;
}

std::string print(std::span<const HostForm> forms) {
  std::string text;
  for (const HostForm& form : forms) text += print(form);
  return text;
}

std::string print_json_phases(const HostForm& form) {
  std::string text = "[";
  const Out out = std::back_inserter(text);
  for (const HostPhase& phase : form.phases) {
    text += &phase == &form.phases.front() ? "{\"moves\":[" : ",\n{\"moves\":[";
    for (std::size_t i = 0; i < phase.moves.size(); ++i) {
      if (i > 0) text += ",";
      put_json_move(out, phase.moves[i]);
    }
    text += "],\"fold\":";
    if (phase.fold)
      put_json_fold(out, *phase.fold);
    else
      text += "null";
    text += "}";
  }
  return text + "]";
}

}  // namespace tutti::schedule
