// The forms of one call as text and as JSON (docs/formats/schedule.md, docs/formats/host_form.md).
#include "schedule/text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "schedule/host/text.hpp"
#include "tool/show/show.hpp"

namespace tutti::tool {
namespace {

using nlohmann::json;
using schedule::Reach;
using schedule::Report;

// ---- what all forms have

// Remarks begin with #, so that message forms can be read back as they are printed.
std::string heading(const ShownCall& call, std::string_view form) {
  std::string text = fmt::format("# {}: {} form\n", title_of(call), form);
  if (!call.is_named)
    text += fmt::format("# The tuner takes {} here; costs: {}.\n", to_string(call.algorithm),
                        call.machine.name);
  return text;
}

std::string verified(const ShownCall& call, const Report& report, const std::string& counts) {
  std::string text = fmt::format("# verified: {}", counts);
  if (has_reduction(call.request.collective))
    text += report.rank_ordered ? ", folds in rank order" : ", folds in an order of its own";
  if (!report.expression.empty()) text += fmt::format("; result: {}", report.expression);
  return text + "\n";
}

json head_of(const ShownCall& call, std::string_view form) {
  json head = {{"form", std::string(form)},
               {"collective", std::string(to_string(call.request.collective))},
               {"algorithm", std::string(to_string(call.algorithm))},
               {"size", call.request.size},
               {"bytes", call.bytes}};
  if (has_shots(call.algorithm, call.request)) head["shots"] = call.request.shots;
  return head;
}

// ---- messages

json to_json(const MessageForm& form) {
  json document = json::parse(schedule::print_json(form.programs));
  document["pass"] = std::string(form.pass);
  document["report"] = {{"steps", form.report.steps},
                        {"messages", form.report.messages},
                        {"rank_ordered", form.report.rank_ordered},
                        {"expression", form.report.expression}};
  return document;
}

std::string to_text(const ShownCall& call, const MessageForm& form, bool is_last) {
  std::string text = form.changes.empty()
                         ? fmt::format("\n# {}", form.pass)
                         : fmt::format("\n# after {}: {}", form.pass, form.changes);
  text += is_last ? "; this is what runs\n" : "\n";
  return text + schedule::print(form.programs) +
         verified(call, form.report,
                  fmt::format("{}, {}", count_of(form.report.steps, "step"),
                              count_of(form.report.messages, "message")));
}

std::string print_messages(const ShownCall& call, const std::vector<MessageForm>& forms,
                           bool as_json) {
  const std::string why = why_by_message(forms.back());
  if (as_json) {
    json document = to_json(forms.back());
    document.update(head_of(call, "message"));
    document["before"] = json::array();
    for (const MessageForm& form : std::span(forms).first(forms.size() - 1))
      document["before"].push_back(to_json(form));
    document["on_one_host"] = {{"form", why.empty() ? "host" : "message"}, {"because", why}};
    if (why.empty()) document["on_one_host"].erase("because");
    return document.dump(1) + "\n";
  }
  std::string text = heading(call, "message");
  text += why.empty()
              ? "# It runs between hosts; ranks of one host run the host form (--form host).\n"
              : fmt::format(
                    "# It runs between hosts, and on one host too, where there is no host "
                    "form: {}.\n",
                    why);
  for (const MessageForm& form : forms) text += to_text(call, form, &form == &forms.back());
  return text;
}

// ---- host

json to_json(const HostVariant& variant) {
  json document = {{"meetings", variant.report.steps},
                   {"report",
                    {{"touches", variant.report.messages},
                     {"rank_ordered", variant.report.rank_ordered},
                     {"expression", variant.report.expression}}},
                   {"ranks", json::array()}};
  for (const schedule::HostForm& form : variant.ranks)
    document["ranks"].push_back(json::parse(schedule::print_json_phases(form)));
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

std::string print_host(const ShownCall& call, const HostView& view, bool as_json, bool all) {
  json rows = json::array();
  std::string text = heading(call, "host");
  text += fmt::format(
      "# Ranks of one host run it, with {}; between hosts: --form message.\n",
      call.is_crowded() ? fmt::format("{} cores", call.machine.cores) : "a core for each");
  for (const Reach reach : schedule::kReaches) {
    const HostVariant* variant = view.find(reach);
    const HostUse use = view.use(reach, call.bytes, call.is_crowded());
    const bool whole = variant != nullptr && (use.runs || all);
    json row = {{"reach", std::string(to_string(reach))}, {"runs", use.runs}, {"when", use.words}};
    if (whole) row.update(to_json(*variant));
    rows.push_back(std::move(row));
    text +=
        fmt::format("\n# {}{}: {}\n", to_string(reach), use.runs ? "" : ", not here", use.words);
    if (whole) text += to_text(call, *variant);
  }
  if (!as_json) return text;
  json document = head_of(call, "host");
  document["format"] = "tutti host form 1";
  document["forms"] = std::move(rows);
  return document.dump(1) + "\n";
}

}  // namespace

Result<std::string> print_message_form(const ShownCall& call, bool as_json) {
  const auto forms = message_forms(call.algorithm, call.request);
  if (!forms.ok()) return forms.status();
  return print_messages(call, *forms, as_json);
}

Result<std::string> print_host_form(const ShownCall& call, bool as_json, bool all) {
  const auto view = HostView::make(call.algorithm, call.request);
  if (!view.ok()) return view.status();
  return *view ? print_host(call, **view, as_json, all) : print_message_form(call, as_json);
}

}  // namespace tutti::tool
