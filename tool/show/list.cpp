// All algorithms of a collective, with what they cost, as a table or as JSON.
#include <fmt/format.h>

#include "core/json.hpp"
#include "tool/bench/arithmetic.hpp"
#include "tool/show/show.hpp"

namespace tutti::tool {
namespace {
using schedule::Program;

// The most that one rank sends: what the slowest rank has to do.
std::size_t most_messages(const std::vector<Program>& programs) {
  std::size_t most = 0;
  for (const Program& program : programs) {
    std::size_t count = 0;
    for (const schedule::Op& op : program.ops)
      if (op.kind == schedule::OpKind::send) ++count;
    most = std::max(most, count);
  }
  return most;
}

// Of the form that ranks of one host run with ordinary memory; 0: they send messages.
Result<std::size_t> meetings_of(const ShownCall& call, Algorithm algorithm) {
  schedule::Request request = call.request;
  request.host_of = {};
  const auto choice = choose(request, algorithm, true, call.bytes, call.machine);
  if (!choice.ok()) return std::size_t{0};  // it is for several hosts only
  request.shots = choice->shots;
  const auto view = HostView::make(algorithm, request);
  if (!view.ok()) return view.status();
  if (!*view) return std::size_t{0};
  const auto way = (*view)->way(call.bytes, call.is_crowded());
  return std::size_t{(*view)->find((*view)->reach(way, CallMemory::ordinary))->report.steps};
}

Result<Json> row_of(const ShownCall& call, Algorithm algorithm) {
  Json row = {{"algorithm", to_string(algorithm)}};
  schedule::Request request = call.request;
  if (const auto choice = choose(request, algorithm, false, call.bytes, call.machine); choice.ok())
    request.shots = choice->shots;
  const auto forms = message_forms(algorithm, request);
  if (!forms.ok() && forms.status().code() != Code::invalid_argument) return forms.status();
  if (!forms.ok()) {
    row["not_here"] = forms.status().message();
    return row;
  }
  const MessageForm& form = forms->back();
  const auto meetings = meetings_of(call, algorithm);
  if (!meetings.ok()) return meetings.status();
  row.update({{"steps", form.report.steps},
              {"messages", form.report.messages},
              {"rank_ordered", form.report.rank_ordered},
              {"tree_ordered", form.report.tree_ordered},
              {"whole_folds", form.report.whole_folds},
              {"expression", form.report.expression},
              {"messages_per_rank", most_messages(form.programs)},
              {"host_form", nullptr}});
  if (*meetings > 0) row["host_form"] = {{"meetings", *meetings}};
  return row;
}

// "rank", "tree, partial": in which order it folds, and whether in one place.
std::string short_order(const Json& row, ReductionOrder asked) {
  schedule::VerifyReport report;
  report.rank_ordered = row["rank_ordered"].boolean();
  report.tree_ordered = row["tree_ordered"].boolean();
  if (!report.rank_ordered && !report.tree_ordered) return "any";
  const std::string words = order_words(report, asked);
  return words.substr(0, words.find(' ')) + (row["whole_folds"].boolean() ? "" : ", partial");
}

std::string line_of(const Json& row, bool reduces, ReductionOrder asked) {
  const std::string& name = row["algorithm"].string();
  if (row.find("not_here") != nullptr)
    return fmt::format("  {:20} not for these ranks and hosts\n", name);
  const Json& host = row["host_form"];
  return fmt::format(
      "  {:20} {:>6} {:>9} {:>13}  {:16}{}\n", name, row["steps"].integer(),
      row["messages"].integer(), row["messages_per_rank"].integer(),
      reduces ? short_order(row, asked) : "",
      host.is_null() ? "by messages"
                     : count_of(static_cast<std::uint64_t>(host["meetings"].integer()), "meeting"));
}

// {"one_host": "direct", "apart": "ring"}: what the tuner takes for this size.
Json choices_of(const ShownCall& call) {
  schedule::Request request = call.request;
  Json choices = Json::object();
  const auto add = [&](const char* where, bool on_one_host) {
    const auto choice =
        choose(request, Algorithm::automatic, on_one_host, call.bytes, call.machine);
    if (choice.ok()) choices[where] = to_string(choice->algorithm);
  };
  if (call.placement() == "hosts") add("hosts", false);
  request.host_of = {};
  add("one_host", true);
  add("apart", false);
  return choices;
}

std::string to_text(const Json& choices, const ShownCall& call) {
  std::string text = call.bytes == 0
                         ? "The tuner takes"
                         : fmt::format("For {} the tuner takes", size_words(call.bytes));
  const std::pair<const char*, std::string> places[] = {{"one_host", "on one host"},
                                                        {"apart", "on a host each"},
                                                        {"hosts", "where " + where_words(call)}};
  const char* comma = " ";
  for (const auto& [where, words] : places)
    if (const Json* choice = choices.find(where))
      text += fmt::format("{}{} {}", std::exchange(comma, ", "), choice->string(), words);
  return text + ".\n";
}

}  // namespace

Result<std::string> print_list(const ShownCall& call, bool as_json) {
  const std::string collective(to_string(call.request.collective));
  Json rows = Json::array();
  for (const Algorithm algorithm : schedule::algorithms_for(call.request.collective)) {
    auto row = row_of(call, algorithm);
    if (!row.ok()) return row.status();
    rows.push_back(*std::move(row));
  }
  if (as_json)
    return Json{{"collective", collective},
                {"size", call.request.size},
                {"bytes", call.bytes},
                {"choice", choices_of(call)},
                {"algorithms", rows}}
               .dump(1) +
           "\n";
  const bool reduces = has_reduction(call.request.collective);
  std::string text = fmt::format("{} on {}:\n  {:20} {:>6} {:>9} {:>13}  {:16}{}\n", collective,
                                 count_of(static_cast<std::uint64_t>(call.request.size), "rank"),
                                 "algorithm", "steps", "messages", "most per rank",
                                 reduces ? "folds in order" : "", "host form");
  for (const Json& row : rows.items()) text += line_of(row, reduces, call.request.order);
  return text + to_text(choices_of(call), call);
}

}  // namespace tutti::tool
