// tutti show - a schedule as text, after it was proved right.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/words.hpp"
#include "schedule/catalog.hpp"
#include "schedule/passes.hpp"
#include "schedule/text.hpp"
#include "schedule/verify.hpp"
#include "tool/command.hpp"

namespace tutti::tool {
namespace {

using schedule::Program;

constexpr int kMostRanks = 1024;  // the verifier follows every chunk of every rank

constexpr const char* kFooter = R"(Examples:
  tutti show all_reduce                            # which algorithms there are, and what they cost
  tutti show all_reduce --algorithm ring -n 4
  tutti show broadcast --algorithm binomial_tree -n 6 --root 2 --json
  tutti show all_reduce --algorithm hierarchical --hosts 2x2
)";

struct ShowOptions {
  std::string collective;
  std::string algorithm;
  int ranks = 0;  // 0: not said
  int root = 0;
  int shots = 2;
  std::string hosts;
  bool in_place = false;
  bool fused = false;
  bool json = false;
};

struct Shown {
  std::vector<Program> programs;
  schedule::Report report;
};

template <class Enum>
std::vector<std::string_view> all_words(int count, int first = 0) {
  std::vector<std::string_view> words;
  for (int i = first; i < count; ++i) words.push_back(to_string(static_cast<Enum>(i)));
  return words;
}

// "2x3": ranks 0 1 2 on host 0, ranks 3 4 5 on host 1.
Result<std::vector<int>> read_hosts(const std::string& text) {
  if (text.empty()) return std::vector<int>();
  const auto parts = split_words(text, 'x');
  std::int64_t hosts = 0;
  std::int64_t each = 0;
  if (parts.size() == 2) {
    if (const auto number = parse_integer(parts[0]); number.ok()) hosts = *number;
    if (const auto number = parse_integer(parts[1]); number.ok()) each = *number;
  }
  if (hosts < 1 || each < 1 || hosts > kMostRanks || each > kMostRanks)
    return Status(Code::invalid_argument,
                  fmt::format("--hosts '{}' is not HOSTSxRANKS, such as 2x2", text));
  std::vector<int> host_of;
  for (int rank = 0; rank < hosts * each; ++rank) host_of.push_back(rank / static_cast<int>(each));
  return host_of;
}

// The request, without rank; `host_of` holds what it refers to.
Result<schedule::Request> read_request(const ShowOptions& options, std::vector<int>& host_of) {
  const auto collective = parse_collective(options.collective);
  if (!collective)
    return Status(Code::invalid_argument, unknown_word("collective", options.collective,
                                                       all_words<Collective>(kCollectives)));
  auto hosts = read_hosts(options.hosts);
  if (!hosts.ok()) return hosts.status();
  host_of = *std::move(hosts);
  const int placed = static_cast<int>(host_of.size());
  const int ranks = options.ranks != 0 ? options.ranks : placed != 0 ? placed : 4;
  if (placed != 0 && ranks != placed)
    return Status(Code::invalid_argument,
                  fmt::format("-n {} does not fit --hosts {}, which are {} ranks", ranks,
                              options.hosts, placed));
  if (ranks < 1 || ranks > kMostRanks)
    return Status(Code::invalid_argument,
                  fmt::format("-n {} lies outside 1 … {}", ranks, kMostRanks));
  schedule::Request request;
  request.collective = *collective;
  request.size = ranks;
  request.root = options.root;
  request.in_place = options.in_place;
  request.shots = options.shots;
  request.host_of = host_of;
  return request;
}

Result<Shown> build_and_verify(Algorithm algorithm, const schedule::Request& request, bool fused) {
  auto programs = schedule::build_all(algorithm, request);
  if (!programs.ok()) return programs.status();
  if (fused)
    for (Program& program : *programs)
      program = schedule::fuse_puts(schedule::fuse_folds(std::move(program)));
  auto report = schedule::verify(*programs);
  if (!report.ok()) return report.status();
  return Shown{*std::move(programs), *std::move(report)};
}

nlohmann::json to_json(const schedule::Report& report) {
  return {{"steps", report.steps},
          {"messages", report.messages},
          {"rank_ordered", report.rank_ordered},
          {"expression", report.expression}};
}

std::string count_of(std::uint64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

// Comment lines of the text form, so that the whole output can be read back.
std::string summary(const Shown& shown, Collective collective) {
  const schedule::Report& report = shown.report;
  std::string text = fmt::format("# verified: {}, {}", count_of(report.steps, "step"),
                                 count_of(report.messages, "message"));
  if (has_reduction(collective))
    text += report.rank_ordered ? ", folds in rank order" : ", folds in an order of its own";
  if (!report.expression.empty()) text += fmt::format("; result: {}", report.expression);
  return text + "\n";
}

int show_one(const ShowOptions& options, const schedule::Request& request) {
  const auto algorithm = parse_algorithm(options.algorithm);
  const auto known = schedule::algorithms_for(request.collective);
  if (!algorithm || *algorithm == Algorithm::automatic) {
    std::vector<std::string_view> words;
    for (const Algorithm each : known) words.push_back(to_string(each));
    return complain(
        "show",
        unknown_word(fmt::format("algorithm for {}", options.collective), options.algorithm, words),
        kBadInput);
  }
  const auto shown = build_and_verify(*algorithm, request, options.fused);
  if (!shown.ok()) return complain("show", shown.status());
  if (options.json) {
    auto document = nlohmann::json::parse(schedule::print_json(shown->programs));
    document["collective"] = options.collective;
    document["algorithm"] = options.algorithm;
    document["size"] = request.size;
    document["report"] = to_json(shown->report);
    fmt::print("{}\n", document.dump(1));
    return kDone;
  }
  fmt::print("{}{}", schedule::print(shown->programs), summary(*shown, request.collective));
  return kDone;
}

// The most that one rank sends: what the slowest rank has to do.
std::size_t most_messages(const std::vector<Program>& programs) {
  std::size_t most = 0;
  for (const Program& program : programs) {
    std::size_t count = 0;
    for (const schedule::Op& op : program.ops)
      if (op.kind == schedule::OpKind::send || op.kind == schedule::OpKind::put) ++count;
    most = std::max(most, count);
  }
  return most;
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

int show(const ShowOptions& options) {
  std::vector<int> host_of;
  const auto request = read_request(options, host_of);
  if (!request.ok()) return complain("show", request.status());
  return options.algorithm.empty() ? show_all(options, *request) : show_one(options, *request);
}

}  // namespace

Command make_show(CLI::App& app) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* show_parser = app.add_subcommand("show", "print a schedule, verified; or list them");
  show_parser->add_option("collective", options->collective, "all_reduce, broadcast, …")
      ->required();
  show_parser->add_option("-a,--algorithm", options->algorithm,
                          "ring, direct, …; none: list them all");
  show_parser->add_option("-n,--ranks", options->ranks, "number of ranks (default 4)")
      ->check(CLI::Range(1, kMostRanks));
  show_parser->add_option("--root", options->root, "rank of the root (default 0)");
  show_parser
      ->add_option("--shots", options->shots,
                   "direct all_reduce: 1 everyone folds all, 2 owners fold slices (default 2)")
      ->check(CLI::Range(1, 2));
  show_parser->add_option("--hosts", options->hosts, "HOSTSxRANKS, for hierarchical and torus_2d");
  show_parser->add_flag("--in-place", options->in_place, "the program for input == output");
  show_parser->add_flag("--fused", options->fused, "after the passes for memory links");
  show_parser->add_flag("--json", options->json, "as JSON");
  show_parser->footer(kFooter);
  return {show_parser, [options] { return show(*options); }};
}

}  // namespace tutti::tool
