// The page of `tutti show --html`: web/show.html with style, script and data in it.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/check.hpp"
#include "core/files.hpp"
#include "core/words.hpp"
#include "schedule/drawing.hpp"
#include "schedule/measure.hpp"
#include "tool/embedded.hpp"
#include "tool/show/layout.hpp"
#include "tool/show/predictions.hpp"
#include "tool/show/show.hpp"

namespace tutti::tool {
namespace {

using nlohmann::json;

constexpr int kAlwaysDrawn = 16;  // groups of 2 … 16 are in every page
constexpr int kBothForms =
    12;  // up to here also with input and output apart: two megabytes are enough
constexpr const char* kScripts[] = {"show/run.js", "show/words.js", "show/stage.js", "show/cost.js",
                                    "show/page.js"};

std::string_view part(std::string_view name) {
  const std::string_view text = embedded_file(name);
  TUTTI_CHECK(!text.empty());
  return text;
}

json to_json(const Layout& layout) {
  const auto rounded = [](const std::vector<double>& values) {
    json list = json::array();
    for (const double value : values) list.push_back(std::round(value * 1000) / 1000);
    return list;
  };
  return {{"kind", layout.kind},
          {"x", rounded(layout.x)},
          {"y", rounded(layout.y)},
          {"hosts", layout.hosts}};
}

json to_json(const schedule::Measure& measure) {
  return {{"chain", measure.chain},
          {"messages", measure.messages},
          {"moved", measure.moved},
          {"folded", measure.folded},
          {"parts", measure.parts}};
}

// Everything that the page knows of one schedule.
Result<std::string> draw(Algorithm algorithm, const schedule::Request& request, bool fused) {
  const auto shown = build_and_verify(algorithm, request, fused);
  if (!shown.ok()) return shown.status();
  const auto measure = schedule::measure(shown->programs);
  if (!measure.ok()) return measure.status();
  const schedule::Program& model = shown->programs.front();
  json head = {{"algorithm", std::string(to_string(algorithm))},
               {"size", request.size},
               {"root", request.root},
               {"in_place", request.in_place},
               {"rooted", has_root(request.collective)},
               {"cut", model.cut},
               {"extents_per_colour", schedule::extents_per_colour(model)},
               {"steps", shown->report.steps},
               {"messages", shown->report.messages},
               {"rank_ordered", shown->report.rank_ordered},
               {"layout", to_json(lay_out(shown->programs, request.host_of))},
               {"measure", to_json(*measure)}};
  std::string text = head.dump();
  text.back() = ',';
  return text + "\"ranks\":" + schedule::print_drawing(shown->programs) + "}";
}

// Sizes that the page offers: the small ones, and the one that was asked for.
std::set<int> sizes_for(int asked) {
  std::set<int> sizes{asked};
  for (int n = 2; n <= kAlwaysDrawn; ++n) sizes.insert(n);
  return sizes;
}

// All algorithms for a group of n, as far as they exist for it.
Status draw_size(const ShowOptions& options, schedule::Request request,
                 std::span<const int> host_of, std::string& list) {
  if (request.root >= request.size) request.root = 0;
  for (const Algorithm algorithm : schedule::algorithms_for(request.collective)) {
    // Only where it matters: a torus by hosts is another torus.
    request.host_of = algorithm == Algorithm::hierarchical ? host_of : std::span<const int>();
    for (const bool in_place : {true, false}) {
      if (!in_place && request.size > kBothForms) continue;
      request.in_place = in_place;
      const auto drawn = draw(algorithm, request, options.fused);
      if (!drawn.ok() && drawn.status().code() == Code::invalid_argument) continue;
      if (!drawn.ok()) return drawn.status();
      list += (list.empty() ? "\n" : ",\n") + *drawn;
    }
  }
  return {};
}

Result<tuner::Machine> read_machine(const std::string& path) {
  if (path.empty()) return tuner::built_in_machine();
  const auto text = read_file(path);
  if (!text.ok())
    return Status(Code::invalid_argument, fmt::format("--tuning {}", text.status().message()));
  auto machine = tuner::parse_machine(*text);
  if (!machine.ok())
    return Status(Code::invalid_argument,
                  fmt::format("--tuning {}: {}", path, machine.status().message()));
  return machine;
}

std::string fill(std::string page, std::string_view mark, std::string_view text) {
  const std::size_t at = page.find(mark);
  TUTTI_CHECK(at != std::string::npos);
  return page.replace(at, mark.size(), text);
}

// Nothing in it may end the script element that holds it.
std::string harmless(std::string text) {
  for (std::size_t at = 0; (at = text.find('<', at)) != std::string::npos;)
    text.replace(at, 1, "\\u003c");
  return text;
}

std::string assemble(const std::string& title, const std::string& data) {
  std::string script;
  for (const char* name : kScripts) script += std::string(part(name)) + "\n";
  std::string page(part("show.html"));
  page = fill(std::move(page), "<!--TITLE-->", title);
  page = fill(std::move(page), "/*STYLE*/",
              std::string(part("style.css")) + std::string(part("show.css")));
  page = fill(std::move(page), "/*DATA*/", harmless(data));
  return fill(std::move(page), "/*SCRIPT*/", script);
}

}  // namespace

Result<std::string> make_page(const ShowOptions& options, const schedule::Request& request,
                              Algorithm algorithm) {
  const auto bytes = parse_bytes(options.bytes);
  if (!bytes.ok()) return bytes.status().annotate("--bytes");
  const auto machine = read_machine(options.tuning);
  if (!machine.ok()) return machine.status();
  // What was asked for must exist; the rest may.
  if (const auto asked = build_and_verify(algorithm, request, options.fused); !asked.ok())
    return asked.status();

  std::string schedules;
  json predictions = json::object();
  for (const int n : sizes_for(request.size)) {
    const bool named = n == request.size && !request.host_of.empty();
    const std::vector<int> host_of =
        named ? std::vector<int>(request.host_of.begin(), request.host_of.end()) : default_hosts(n);
    schedule::Request sized = request;
    sized.size = n;
    if (Status status = draw_size(options, sized, host_of, schedules); !status.ok()) return status;
    predictions[std::to_string(n)] = predict(request.collective, n, host_of, *machine);
  }
  json head = {{"format", "tutti page 1"},
               {"version", TUTTI_VERSION},
               {"collective", options.collective},
               {"reduces", has_reduction(request.collective)},
               {"start",
                {{"algorithm", std::string(to_string(algorithm))},
                 {"size", request.size},
                 {"placement", request.host_of.empty() ? "apart" : "hosts"},
                 {"bytes", *bytes}}},
               {"machine", machine_facts(*machine)},
               {"sizes", prediction_sizes()},
               {"predictions", predictions}};
  std::string data = head.dump();
  data.back() = ',';
  return assemble(
      fmt::format("{} by {} on {} ranks", options.collective, options.algorithm, request.size),
      data + "\"schedules\":[" + schedules + "]}");
}

}  // namespace tutti::tool
