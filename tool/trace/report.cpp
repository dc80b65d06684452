// tutti trace report - where the time went: in words, as JSON, as a page.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "core/json.hpp"
#include "tool/trace/output.hpp"
#include "tool/trace/report_data.hpp"
#include "tool/trace/trace.hpp"
#include "tool/trace/words.hpp"
#include "tool/web_page.hpp"

namespace tutti::tool::trace {
namespace {

constexpr const char* kReportCommand = "trace report";
// Slices on the page: about three megabytes, which a browser still draws at once.
constexpr std::size_t kMostSlices = 100'000;
constexpr std::size_t kMostRows = 12;  // in the terminal

struct ReportOptions {
  std::string folder;
  std::string html;
  std::string job;
  bool json = false;
};

std::string page_of(const Json& data) {
  return assemble(
      {.skeleton = "report.html",
       .styles = {"report.css"},
       .scripts = {"report/words.js", "report/timeline.js", "report/charts.js", "report/page.js"},
       .data = data.dump_ascii()});
}

// As a terminal counts: bytes of UTF-8 that go on with a letter are none.
std::size_t letters(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xc0) != 0x80; }));
}

void print_table(const Json& rows) {
  std::vector<std::vector<std::string>> lines = {
      {"collective", "group", "algorithm", "size", "count", "predicted", "measured", "busbw"}};
  const auto time = [](const Json& us) {
    return us.is_null() ? std::string("-") : time_words(us.number() * 1e3);
  };
  for (std::size_t i = 0; i < std::min(rows.size(), kMostRows); ++i) {
    const Json& row = rows[i];
    lines.push_back({row["collective"].string(), row["group"].string(), row["algorithm"].string(),
                     row["size"].string(), std::to_string(row["count"].integer()),
                     time(row["predicted_us"]), time(row["median_us"]),
                     fmt::format("{:.2f} GB/s", row["busbw_gbs"].number())});
  }
  fmt::print("\n");
  constexpr std::size_t kWords = 3;  // columns that are not numbers
  for (const auto& line : lines) {
    std::string text;
    for (std::size_t column = 0; column < line.size(); ++column) {
      std::size_t width = 0;
      for (const auto& other : lines) width = std::max(width, letters(other[column]));
      const std::string room(width - letters(line[column]), ' ');
      text +=
          (column == 0 ? "" : "  ") + (column < kWords ? line[column] + room : room + line[column]);
    }
    fmt::print("{}\n", text);
  }
  if (rows.size() > kMostRows)
    fmt::print("… and {} more; --json has all\n", rows.size() - kMostRows);
}

int report(const ReportOptions& options) {
  if (Status status = check_output("--html", options.html); !status.ok())
    return complain(kReportCommand, status);
  tutti::Result<tutti::trace::TracedRun> run = Status(Code::internal, "not run");
  {
    Progress reading("reading trace");
    run = tutti::trace::load_run(options.folder, options.job,
                                 [&](std::size_t done, std::size_t all) { reading.at(done, all); });
  }
  if (!run.ok()) return complain(kReportCommand, run.status());
  const auto analysis = tutti::trace::analyse(*run);
  const Summary summary = summarise(analysis);
  const auto findings = find_findings(*run, analysis, summary);
  const Json data = report_json(*run, analysis, summary, findings, curves_of(*run, options.folder));
  if (!options.html.empty()) {
    Json drawn = data;
    drawn["timeline"] = timeline_json(*run, analysis, kMostSlices);
    if (Status status = write_file(options.html, page_of(drawn)); !status.ok())
      return complain(kReportCommand, status);
  }
  if (options.json) {
    fmt::print("{}\n", data.dump());
    return kDone;
  }
  for (const Finding& finding : findings) fmt::print("* {}\n", finding.text);
  if (data["collectives"].size() > 0) print_table(data["collectives"]);
  if (!options.html.empty()) fmt::print("\nThe page is {}\n", options.html);
  return kDone;
}

}  // namespace

Command make_report(CLI::App& trace) {
  CLI::App* parser = trace.add_subcommand("report", "where the time went, in words and as a page");
  auto options = std::make_shared<ReportOptions>();
  parser->add_option("folder", options->folder, "what TUTTI_TRACE_DIR was")->required();
  parser->add_option("--html", options->html, "page to write: one file, opens without a network");
  parser->add_option("--job", options->job, "which job, if the folder holds several");
  parser->add_flag("--json", options->json, "print everything but the timeline as JSON");
  parser->footer(
      "Example:\n  tutti run -n 4 pretrain_gpt … --trace d\n"
      "  tutti trace report d --html report.html\n");
  return {parser, [options] { return report(*options); }};
}

}  // namespace tutti::tool::trace
