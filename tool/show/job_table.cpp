// A job's snapshot as a table.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include "core/json.hpp"
#include "tool/fitted_table.hpp"
#include "tool/show/job_view.hpp"
#include "tool/show/show.hpp"

namespace tutti::tool {
namespace {

std::string seconds(double time) {
  if (time < 1e-3) return fmt::format("{:.0f} us", time * 1e6);
  if (time < 1) return fmt::format("{:.1f} ms", time * 1e3);
  if (time < 100) return fmt::format("{:.1f} s", time);
  return fmt::format("{:.0f} min {:02.0f} s", std::floor(time / 60), std::fmod(time, 60));
}

std::string rate(double value, bool of_bytes) {
  const char* units[] = {"", "k", "M", "G", "T"};
  std::size_t unit = 0;
  for (; value >= 1000 && unit < 4; ++unit) value /= 1000;
  return fmt::format("{:.{}f} {}{}/s", value,
                     value < 10    ? 2
                     : value < 100 ? 1
                                   : 0,
                     units[unit], of_bytes ? "B" : "");
}

// "0–2, 5"
std::string list(const std::set<int>& ranks) {
  std::string text;
  for (auto it = ranks.begin(); it != ranks.end();) {
    const int first = *it;
    int last = first;
    for (++it; it != ranks.end() && *it == last + 1; ++it) last = *it;
    text += text.empty() ? "" : ", ";
    text += first == last       ? fmt::format("{}", first)
            : last == first + 1 ? fmt::format("{}, {}", first, last)
                                : fmt::format("{}–{}", first, last);
  }
  return text;
}

// As wide as the longest; 0: no rank has one.
std::size_t width_of_labels(const Json& job) {
  std::size_t width = 0;
  for (const Json& rank : job["ranks"].items())
    if (const Json* label = rank.find("label")) width = std::max(width, label->string().size());
  return width;
}

FittedTable table_of(const Json& job, std::size_t width) {
  constexpr auto kSideLeft = TableColumn::Side::left;
  const std::size_t labels = width_of_labels(job);
  return {{{"rank", "", 5, 100, TableColumn::Side::right, ""},
           {labels > 0 ? "label" : "", "", labels, 88, kSideLeft, labels > 0 ? "  " : ""},
           {"pid", "", 8, 30},
           {"state", "", 10, 95, kSideLeft, "  "},
           {"for", "", 12, 80},
           {"last operation", "", 24, 90, kSideLeft, "  "},
           {"group", "", 12, 50, kSideLeft},
           {"waits for", "", 14, 85, kSideLeft},
           {"calls", "", 12, 35},
           {"bytes", "", 13, 40}},
          width};
}

std::vector<std::string> cells_of(const Json& rank) {
  const bool noted = rank.find("operation") != nullptr;
  std::string state = rank["state"].string();
  if (const Json* code = rank.find("exit_code")) state = fmt::format("ended ({})", code->integer());
  std::string operation;
  if (noted) {
    operation = rank["operation"].string();
    if (rank["sequence"].integer() > 0)
      operation += fmt::format(" #{}", rank["sequence"].integer());
  }
  std::set<int> waits;
  for (const Json& other : rank["waits_for"].items())
    waits.insert(static_cast<int>(other.integer()));
  const auto figure = [&](const char* name, bool of_bytes) {
    const Json* value = rank.find(name);
    return value != nullptr ? rate(value->number(), of_bytes) : std::string("-");
  };
  const Json* label = rank.find("label");
  return {std::to_string(rank["rank"].integer()),
          label != nullptr ? label->string() : "",
          std::to_string(rank["pid"].integer()),
          state,
          noted ? seconds(rank["for_s"].number()) : "-",
          operation,
          noted ? rank["group"].string() : "",
          list(waits),
          figure("calls_per_s", false),
          figure("bytes_per_s", true)};
}

// One line per rank that others wait for.
std::string findings(const Json& job) {
  std::map<int, std::set<int>> waiting;
  for (const Json& rank : job["ranks"].items())
    for (const Json& other : rank["waits_for"].items())
      waiting[static_cast<int>(other.integer())].insert(static_cast<int>(rank["rank"].integer()));
  std::string text;
  for (const auto& [other, ranks] : waiting)
    text += fmt::format("rank{} {} wait{} for rank {}\n", ranks.size() == 1 ? "" : "s", list(ranks),
                        ranks.size() == 1 ? "s" : "", other);
  return text.empty() ? "nobody waits for anybody\n" : text;
}

}  // namespace

std::string job_table(const Json& job, std::size_t rows, std::size_t width) {
  const FittedTable table = table_of(job, width);
  const std::int64_t nodes = job["nodes"].integer();
  std::string text = fmt::format(
      "job {}  {}  on {}  {}  up {}\n", job["job"].string(), job["program"].string(),
      job["host"].string(),
      nodes == 1 ? count_of(job["ranks"].size(), "rank")
                 : fmt::format("{} of {} ranks (node {} of {}; each launcher shows its own)",
                               job["ranks"].size(), job["ranks_in_job"].integer(),
                               job["node"].integer(), nodes),
      seconds(job["up_s"].number()));
  text += table.names() + "\n";
  std::size_t shown = 0;
  for (const Json& rank : job["ranks"].items()) {
    if (shown++ == rows) break;
    text += table.line(cells_of(rank)) + "\n";
  }
  if (shown > rows) text += fmt::format("  … and {} more\n", job["ranks"].size() - rows);
  if (const std::string left_out = table.left_out(); !left_out.empty())
    text += fmt::format("(--wide adds: {})\n", left_out);
  return text + findings(job);
}

void add_rates(const Json& before, Json& now) {
  const double passed = now["time_s"].number() - before["time_s"].number();
  if (passed <= 0 || before["ranks"].size() != now["ranks"].size()) return;
  Json ranks = Json::array();
  for (std::size_t i = 0; i < before["ranks"].size(); ++i) {
    const Json& old = before["ranks"][i];
    Json rank = now["ranks"][i];
    for (const char* name : {"calls", "bytes"})
      if (const Json* count = rank.find(name)) {
        const double more = count->number() - old[name].number();
        rank[fmt::format("{}_per_s", name)] = std::max(0.0, more / passed);
      }
    ranks.push_back(std::move(rank));
  }
  now["ranks"] = std::move(ranks);
}

}  // namespace tutti::tool
