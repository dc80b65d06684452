// tutti show - a schedule as text, as a page or as a drawing, after it was proved right.
#include "tool/command.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/words.hpp"
#include "schedule/catalog.hpp"
#include "tool/show/job_view.hpp"
#include "tool/show/show.hpp"
#include "tuner/choose.hpp"

namespace tutti::tool {
namespace {

constexpr const char* kFooter = R"(Examples:
  tutti show all_reduce                            # which algorithms there are, and what they cost
  tutti show all_reduce --algorithm ring -n 4
  tutti show broadcast --algorithm binomial_tree -n 6 --root 2 --json
  tutti show all_reduce --algorithm hierarchical --hosts 2x2
  tutti show all_reduce --algorithm double_binary_tree -n 8 --html trees.html   # animated
  tutti show all_reduce --algorithm ring -n 4 --svg ring.svg
)";

constexpr const char* kJobFooter = R"(Examples:
  tutti show job                  # the running job, every second; Ctrl-C leaves, the job goes on
  tutti show job --once --json

Ranks of this host's launcher only; on several hosts, look on each.
)";

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
  if (hosts < 1 || each < 1 || hosts > kMostRanksShown || each > kMostRanksShown)
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
  if (ranks < 1 || ranks > kMostRanksShown)
    return Status(Code::invalid_argument,
                  fmt::format("-n {} lies outside 1 … {}", ranks, kMostRanksShown));
  schedule::Request request;
  request.collective = *collective;
  request.size = ranks;
  request.root = options.root;
  request.in_place = options.in_place;
  request.shots = options.shots;
  request.host_of = host_of;
  return request;
}

// What was asked for; where nothing was, what the tuner would take on a host each.
Result<Algorithm> read_algorithm(ShowOptions& options, const schedule::Request& request) {
  if (options.algorithm.empty()) {
    std::vector<int> apart(static_cast<std::size_t>(request.size));
    std::iota(apart.begin(), apart.end(), 0);
    tuner::CallFacts facts;
    facts.collective = request.collective;
    facts.ranks = request.size;
    facts.bytes = 1 << 20;
    facts.host_of = request.host_of.empty() ? std::span<const int>(apart) : request.host_of;
    options.algorithm = to_string(tuner::choose(facts).algorithm);
  }
  const auto algorithm = parse_algorithm(options.algorithm);
  if (algorithm && *algorithm != Algorithm::automatic) return *algorithm;
  std::vector<std::string_view> words;
  for (const Algorithm each : schedule::algorithms_for(request.collective))
    words.push_back(to_string(each));
  return Status(
      Code::invalid_argument,
      unknown_word(fmt::format("algorithm for {}", options.collective), options.algorithm, words));
}

Status check_outputs(const ShowOptions& options, const schedule::Request& request) {
  const int outputs = (options.html.empty() ? 0 : 1) + (options.svg.empty() ? 0 : 1) +
                      (options.json ? 1 : 0) + (options.text ? 1 : 0);
  if (outputs > 1)
    return {Code::invalid_argument, "--html, --svg, --text and --json exclude each other"};
  const bool drawn = !options.html.empty() || !options.svg.empty();
  if (drawn && request.size > kMostRanksDrawn)
    return {Code::invalid_argument,
            fmt::format("-n {} is more than can be drawn ({} ranks); --text and --json go up to {}",
                        request.size, kMostRanksDrawn, kMostRanksShown)};
  return {};
}

int write(const std::string& path, const std::string& text) {
  if (Status status = write_whole(path, text); !status.ok()) return complain("show", status);
  if (path != "/dev/stdout") fmt::print("wrote {} ({} KiB)\n", path, (text.size() + 1023) / 1024);
  return kDone;
}

int show(ShowOptions options) {
  if (options.collective.empty())
    return complain("show", "say what to show: a collective, such as all_reduce, or job",
                    kBadInput);
  std::vector<int> host_of;
  const auto request = read_request(options, host_of);
  if (!request.ok()) return complain("show", request.status());
  if (Status status = check_outputs(options, *request); !status.ok())
    return complain("show", status);
  const bool drawn = !options.html.empty() || !options.svg.empty();
  if (options.algorithm.empty() && !drawn) return show_all(options, *request);
  const auto algorithm = read_algorithm(options, *request);
  if (!algorithm.ok()) return complain("show", algorithm.status());
  if (!options.html.empty()) {
    const auto page = make_page(options, *request, *algorithm);
    return page.ok() ? write(options.html, *page) : complain("show", page.status());
  }
  const auto shown = build_and_verify(*algorithm, *request, options.fused);
  if (!shown.ok()) return complain("show", shown.status());
  return options.svg.empty() ? show_one(options, *shown, request->collective)
                             : write(options.svg, make_svg(*shown));
}

CLI::App* add_job_parser(CLI::App& show_parser, JobViewOptions& options) {
  CLI::App* parser = show_parser.add_subcommand(
      "job", "live view of a job started by tutti run: who does what, who waits for whom");
  parser->add_option("job", options.job,
                     "its name, the beginning of it, or the launcher's pid; none: the only one");
  parser->add_option("--interval", options.interval, "seconds between two looks (default 1)");
  parser->add_flag("--once", options.once, "look once and end");
  parser->add_flag("--json", options.json, "one JSON object a line for every look");
  parser->footer(kJobFooter);
  return parser;
}

}  // namespace

Command make_show(CLI::App& app) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* show_parser =
      app.add_subcommand("show", "a schedule, verified: as text, page or drawing; a running job");
  show_parser->add_option("collective", options->collective, "all_reduce, broadcast, …");
  show_parser->add_option("-a,--algorithm", options->algorithm,
                          "ring, direct, …; none: list them all");
  show_parser->add_option("-n,--ranks", options->ranks, "number of ranks (default 4)")
      ->check(CLI::Range(1, kMostRanksShown));
  show_parser->add_option("--root", options->root, "rank of the root (default 0)");
  show_parser
      ->add_option("--shots", options->shots,
                   "direct all_reduce: 1 everyone folds all, 2 owners fold slices (default 2)")
      ->check(CLI::Range(1, 2));
  show_parser->add_option("--hosts", options->hosts, "HOSTSxRANKS, for hierarchical and torus_2d");
  show_parser->add_flag("--in-place", options->in_place, "the program for input == output");
  show_parser->add_flag("--fused", options->fused, "after the passes for memory links");
  show_parser->add_option("--html", options->html, "write an animated page into this file");
  show_parser->add_option("--svg", options->svg, "write a still drawing into this file");
  show_parser->add_flag("--text", options->text, "as text (the default)");
  show_parser->add_flag("--json", options->json, "as JSON");
  show_parser->add_option("--bytes", options->bytes,
                          "size of the call that the page begins with (default 1M)");
  show_parser->add_option("--tuning", options->tuning,
                          "the page's costs: a tuning table (default: the built-in one)");
  show_parser->footer(kFooter);
  auto job_options = std::make_shared<JobViewOptions>();
  CLI::App* job_parser = add_job_parser(*show_parser, *job_options);
  return {show_parser, [options, job_parser, job_options] {
            return job_parser->parsed() ? show_job(*job_options) : show(*options);
          }};
}

}  // namespace tutti::tool
