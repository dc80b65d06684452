// The forms of one call as text and as JSON (docs/formats/schedule.md, docs/formats/host_form.md).
#include "schedule/text.hpp"

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/json.hpp"
#include "schedule/host/text.hpp"
#include "tool/show/show.hpp"

namespace tutti::tool {
namespace {
using schedule::Reach;
using schedule::VerifyReport;

// ---- what all forms have

// Which form it is, and why this one. Remarks begin with #, so that message forms can be read back as
// they are printed.
std::string heading(const ShownCall& call, std::string_view form, const std::string& where) {
  std::string text = fmt::format("# {}: {} form\n{}", title_of(call), form, where);
  if (!call.is_named)
    text += fmt::format("# The tuner takes {} here; costs: {}.\n", to_string(call.algorithm),
                        call.machine.name);
  return text;
}

std::string runs_where(const ShownCall& call) {
  return fmt::format("# It runs where {}{}.\n", where_words(call),
                     call.is_placed ? "" : " (assumed, as no --hosts are named)");
}

std::string verified(const ShownCall& call, const VerifyReport& report, const std::string& counts) {
  std::string text = fmt::format("# verified: {}", counts);
  if (has_reduction(call.request.collective))
    text += ", folds in " + order_words(report, call.request.order);
  if (!report.expression.empty()) text += fmt::format("; result: {}", report.expression);
  return text + "\n";
}

Json head_of(const ShownCall& call, std::string_view form) {
  Json head = {{"form", form},
               {"collective", to_string(call.request.collective)},
               {"algorithm", to_string(call.algorithm)},
               {"size", call.request.size},
               {"bytes", call.bytes},
               {"placement", call.placement()},
               {"chosen_by", call.is_named ? "caller" : "tuner"}};
  if (has_shots(call.algorithm, call.request)) head["shots"] = call.request.shots;
  return head;
}

// What another room printed.
Json parsed(const std::string& text) {
  auto json = Json::parse(text);
  TUTTI_CHECK(json.ok());
  return *std::move(json);
}

// ---- messages

Json to_json(const MessageForm& form) {
  Json document = parsed(schedule::print_json(form.programs));
  document["pass"] = form.pass;
  document["report"] = {{"steps", form.report.steps},
                        {"messages", form.report.messages},
                        {"rank_ordered", form.report.rank_ordered},
                        {"tree_ordered", form.report.tree_ordered},
                        {"whole_folds", form.report.whole_folds},
                        {"expression", form.report.expression}};
  return document;
}

std::string to_text(const ShownCall& call, const MessageForm& form, bool runs) {
  std::string text = form.changes.empty()
                         ? fmt::format("\n# {}", form.pass)
                         : fmt::format("\n# after {}: {}", form.pass, form.changes);
  text += runs ? "; this is what runs\n" : "\n";
  return text + schedule::print(form.programs) +
         verified(call, form.report,
                  fmt::format("{}, {}", count_of(form.report.steps, "step"),
                              count_of(form.report.messages, "message")));
}

// `why`: there is no host form; empty where there is one.
std::string where_messages_run(const ShownCall& call, const std::string& why) {
  if (call.request.size == 1) return "# A rank alone neither sends nor meets anybody.\n";
  if (why.empty())
    return (call.placement() == "one_host" ? "" : runs_where(call)) +
           "# Ranks of one host run the host form instead: --form host.\n";
  return runs_where(call) +
         fmt::format("# {}: {}.\n",
                     call.on_one_host ? "Messages, as there is no host form"
                                      : "Ranks of one host send these messages too, as there is no "
                                        "host form",
                     why);
}

std::string print_messages(const ShownCall& call, const std::vector<MessageForm>& forms,
                           bool as_json) {
  const std::string why = why_by_message(forms.back());
  if (as_json) {
    Json document = head_of(call, "message");
    document.update(to_json(forms.back()));
    document["before"] = Json::array();
    for (const MessageForm& form : std::span(forms).first(forms.size() - 1))
      document["before"].push_back(to_json(form));
    document["on_one_host"]["form"] = why.empty() ? "host" : "message";
    if (!why.empty()) document["on_one_host"]["because"] = why;
    return document.dump(1) + "\n";
  }
  std::string text = heading(call, "message", where_messages_run(call, why));
  const bool runs = !why.empty() || call.placement() != "one_host";
  for (const MessageForm& form : forms) text += to_text(call, form, runs && &form == &forms.back());
  return text;
}

// ---- host

Json to_json(const HostVariant& variant) {
  Json document = {{"meetings", variant.report.steps},
                   {"report",
                    {{"touches", variant.report.messages},
                     {"rank_ordered", variant.report.rank_ordered},
                     {"tree_ordered", variant.report.tree_ordered},
                     {"whole_folds", variant.report.whole_folds},
                     {"expression", variant.report.expression}}},
                   {"ranks", Json::array()}};
  for (const schedule::HostForm& form : variant.ranks)
    document["ranks"].push_back(parsed(schedule::print_json_phases(form)));
  return document;
}

std::string to_text(const ShownCall& call, const HostVariant& variant) {
  return schedule::print(variant.ranks) +
         verified(
             call, variant.report,
             fmt::format("{}, {} of a peer's memory", count_of(variant.report.steps, "meeting"),
                         variant.report.messages == 1
                             ? "1 touch"
                             : fmt::format("{} touches", variant.report.messages)));
}

// With the memory that was named, or with any.
HostUse use_of(const ShownCall& call, const HostView& view, Reach reach) {
  HostUse use = view.use(reach, call.bytes, call.is_crowded());
  if (!use.runs || !call.memory) return use;
  if (view.reach(view.way(call.bytes, call.is_crowded()), *call.memory) == reach) return use;
  return {false, "it is for other memory: " + use.words};
}

std::string print_host(const ShownCall& call, const HostView& view, bool as_json, bool all) {
  Json rows = Json::array();
  std::string text = heading(
      call, "host", runs_where(call) + "# Between hosts the message form runs: --form message.\n");
  text +=
      "# Made of the message form after fuse_folds by the pass lower: one for each way in which "
      "ranks\n"
      "# can reach the memory that the others pass.\n";
  for (const Reach reach : schedule::kReaches) {
    const HostVariant* variant = view.find(reach);
    const HostUse use = use_of(call, view, reach);
    const bool whole = variant != nullptr && (use.runs || all);
    Json row = {{"reach", to_string(reach)}, {"runs", use.runs}, {"when", use.words}};
    if (whole) row.update(to_json(*variant));
    rows.push_back(std::move(row));
    text += fmt::format("\n# after lower, {}{}: {}\n", to_string(reach),
                        use.runs ? "" : ", which does not run here", use.words);
    if (whole) text += to_text(call, *variant);
  }
  if (!as_json) return text;
  Json document = head_of(call, "host");
  document["format"] = "tutti host form 1";
  document["pass"] = "lower";
  document["forms"] = std::move(rows);
  return document.dump(1) + "\n";
}

}  // namespace

Result<std::string> print_message_form(const ShownCall& call, bool as_json) {
  const auto forms = message_forms(call.algorithm, call.request);
  if (!forms.ok()) return forms.status();
  return print_messages(call, *forms, as_json);
}

std::string print_host_form(const ShownCall& call, bool as_json, bool all) {
  return print_host(call, *call.host, as_json, all);
}

}  // namespace tutti::tool
