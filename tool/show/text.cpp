// tutti show - schedules as text and as JSON.
#include "schedule/text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "schedule/passes.hpp"
#include "tool/command.hpp"
#include "tool/show/show.hpp"

namespace tutti::tool {

using schedule::Program;

Result<Shown> build_and_verify(Algorithm algorithm, const schedule::Request& request, bool fused) {
  auto programs = schedule::build_all(algorithm, request);
  if (!programs.ok()) return programs.status();
  if (fused)
    for (Program& program : *programs) program = schedule::fuse_folds(std::move(program));
  auto report = schedule::verify(*programs);
  if (!report.ok()) return report.status();
  return Shown{*std::move(programs), *std::move(report)};
}

std::string count_of(std::uint64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

namespace {

nlohmann::json to_json(const schedule::VerifyReport& report) {
  return {{"steps", report.steps},
          {"messages", report.messages},
          {"rank_ordered", report.rank_ordered},
          {"expression", report.expression}};
}

// Comment lines of the text form, so that the whole output can be read back.
std::string summary(const Shown& shown, Collective collective) {
  const schedule::VerifyReport& report = shown.report;
  std::string text = fmt::format("# verified: {}, {}", count_of(report.steps, "step"),
                                 count_of(report.messages, "message"));
  if (has_reduction(collective))
    text += report.rank_ordered ? ", folds in rank order" : ", folds in an order of its own";
  if (!report.expression.empty()) text += fmt::format("; result: {}", report.expression);
  return text + "\n";
}

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

}  // namespace

int show_one(const ShowOptions& options, const Shown& shown, Collective collective) {
  if (options.json) {
    auto document = nlohmann::json::parse(schedule::print_json(shown.programs));
    document["collective"] = options.collective;
    document["algorithm"] = options.algorithm;
    document["size"] = shown.programs.size();
    document["report"] = to_json(shown.report);
    fmt::print("{}\n", document.dump(1));
    return kDone;
  }
  fmt::print("{}{}", schedule::print(shown.programs), summary(shown, collective));
  return kDone;
}

int show_all(const ShowOptions& options, const schedule::Request& request) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Algorithm algorithm : schedule::algorithms_for(request.collective)) {
    nlohmann::json row = {{"algorithm", std::string(to_string(algorithm))}};
    const auto shown = build_and_verify(algorithm, request, options.fused);
    if (shown.ok()) {
      row.update(to_json(shown->report));
      row["messages_per_rank"] = most_messages(shown->programs);
    } else if (shown.status().code() == Code::invalid_argument) {
      row["not_here"] = shown.status().message();
    } else {
      return complain("show", shown.status());
    }
    rows.push_back(std::move(row));
  }
  if (options.json) {
    const nlohmann::json document = {
        {"collective", options.collective}, {"size", request.size}, {"algorithms", rows}};
    fmt::print("{}\n", document.dump(1));
    return kDone;
  }
  fmt::print("{} on {}:\n  {:20} {:>6} {:>9} {:>13}  {}\n", options.collective,
             count_of(static_cast<std::uint64_t>(request.size), "rank"), "algorithm", "steps",
             "messages", "most per rank", has_reduction(request.collective) ? "rank order" : "");
  for (const auto& row : rows) {
    const std::string name = row["algorithm"];
    if (row.contains("not_here"))
      fmt::print("  {:20} not for this size\n", name);
    else
      fmt::print("  {:20} {:>6} {:>9} {:>13}  {}\n", name, row["steps"].get<int>(),
                 row["messages"].get<int>(), row["messages_per_rank"].get<int>(),
                 !has_reduction(request.collective) ? ""
                 : row["rank_ordered"].get<bool>()  ? "yes"
                                                    : "no");
  }
  return kDone;
}

}  // namespace tutti::tool
