#include "tool/bench/compare.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>

#include "bench/peers/settings.hpp"
#include "core/json.hpp"
#include "core/words.hpp"
#include "tool/bench/arithmetic.hpp"
#include "tool/bench/contestants.hpp"
#include "tool/bench/options.hpp"
#include "tool/bench/progress.hpp"
#include "tool/bench/report.hpp"
#include "tool/command.hpp"
#include "tool/interruption.hpp"
#include "tool/numbers.hpp"
#include "tool/result_file.hpp"

namespace tutti::tool {
namespace {

constexpr const char* kCompareCommand = "bench compare";

constexpr const char* kCompareFooter = R"(Examples:
  tutti bench compare                                    the whole table: about an hour
  tutti bench compare -n 2 --collectives all_reduce --runs 3 --json compare.json
  tutti bench compare -n 2 --transport tcp --peers gloo
  tutti bench compare -n 8 --hosts --each 2              4 hosts of 2 ranks (as root: bench/hosts up 4 1000)

Runs tutti, Open MPI, MPICH and Gloo, those that were found when tutti was built, one after the other
(backwards in every other run), pinned alike, by the same protocol (bench/protocol.hpp): f32, sum;
all_reduce and broadcast in place, the others out of place. A ratio is the peer's time / tutti's time
in the same run; shown is the median over runs, against each peer's defaults and against the best of
its settings in that run (bench/peers/settings.hpp). A peer that hangs or computes wrongly is named and
left out.
)";

struct CompareWords {
  std::string ranks = "2,4,8";
  std::string collectives = "all_reduce,reduce_scatter,all_gather,broadcast,all_to_all,barrier";
  std::string memory = "both";
  std::string transport = "shm";
  std::string budget = "25ms";
  std::string limit = "120";
  std::string peers;
};

Status read_ranks(const std::string& text, CompareOptions& options) {
  options.ranks.clear();
  for (const std::string_view word : split_words(text, ',')) {
    const auto number = parse_integer(word);
    if (!number.ok() || *number < 1 || *number > 256)
      return invalid(fmt::format("-n {}: '{}' is not a number of ranks", text, word));
    options.ranks.push_back(static_cast<int>(*number));
  }
  return options.ranks.empty() ? invalid("-n names no number of ranks") : Status();
}

Status read_collectives(const std::string& text, CompareOptions& options) {
  auto collectives = parse_collectives(text);
  if (!collectives.ok()) return collectives.status().annotate("--collectives");
  options.collectives = *std::move(collectives);
  return {};
}

Status read_peers(const std::string& text, CompareOptions& options) {
  std::set<std::string_view> known;
  for (const auto& setting : bench::kPeerSettings) known.insert(setting.peer);
  for (const std::string_view word : split_words(text, ',')) {
    if (!known.contains(word)) {
      const std::vector<std::string_view> list(known.begin(), known.end());
      return invalid(unknown_word("--peers", word, list));
    }
    options.peers.emplace_back(word);
  }
  return {};
}

// The words that `tutti bench` reads itself are understood by its own rules.
Status read_rest(const CompareWords& words, CompareOptions& options) {
  BenchWords bench_words;
  bench_words.collectives = words.collectives;
  bench_words.first = options.first;
  bench_words.last = options.last;
  bench_words.factor = options.factor;
  bench_words.budget = words.budget;
  bench_words.transport = words.transport;
  BenchOptions understood;
  if (Status status = understand(bench_words, understood); !status.ok()) return status;
  options.sizes = understood.sizes;
  options.budget_us = understood.effort.budget_us;
  for (const int ranks : options.ranks)
    if (options.hosts ? ranks % options.each != 0 : options.each != 1)
      return invalid(options.hosts
                         ? fmt::format("--each {} does not divide -n {}", options.each, ranks)
                         : "--each goes with --hosts");
  if (words.transport == "inproc") return invalid("--transport is shm, tcp or ofi");
  options.wire = options.hosts && words.transport == "shm" ? "tcp" : words.transport;
  if (words.memory != "both" && words.memory != "symmetric" && words.memory != "plain")
    return invalid(fmt::format("--memory '{}' is not symmetric, plain or both", words.memory));
  if (words.memory != "both") options.memories = {words.memory};
  const auto limit =
      read_duration("--limit", words.limit, std::chrono::seconds(1), std::chrono::hours(24));
  if (!limit.ok()) return limit.status();
  options.limit = std::chrono::ceil<std::chrono::seconds>(*limit);
  if (Status status = check_premises(options); !status.ok()) return status;
  return check_output("--json", options.json == "-" ? "" : options.json);
}

Status understand(const CompareWords& words, CompareOptions& options) {
  if (Status status = read_ranks(words.ranks, options); !status.ok()) return status;
  if (Status status = read_collectives(words.collectives, options); !status.ok()) return status;
  if (Status status = read_peers(words.peers, options); !status.ok()) return status;
  return read_rest(words, options);
}

void tell_missing(const CompareOptions& options) {
  std::set<std::string> told;
  for (const auto& setting : bench::kPeerSettings) {
    const bool wanted =
        options.peers.empty() ||
        std::find(options.peers.begin(), options.peers.end(), setting.peer) != options.peers.end();
    if (!wanted || !told.insert(setting.peer).second) continue;
    if (const std::string why = missing(setting.peer); !why.empty()) fmt::print("# {}\n", why);
  }
}

struct Gathered {
  std::vector<TimedCell> samples;
  std::size_t own_failures = 0;
  std::size_t wrong = 0;  // of tutti
};

// Whoever comes later finds the machine warmer, or busier: the order turns round with every run.
std::vector<Contestant> in_order(std::vector<Contestant> contestants, int run) {
  if (run % 2 == 1) std::reverse(contestants.begin(), contestants.end());
  return contestants;
}

std::string document_of(const CompareOptions& options, const Json& machine,
                        const std::vector<TimedCell>& samples) {
  const Json document = {{"machine", machine},
                         {"date", date_word()},
                         {"runs", options.runs},
                         {"transport", options.wire},
                         {"warm", !options.cold},
                         {"ratios", ratios_json(ratios_of(samples))},
                         {"samples", samples_json(samples)}};
  return document.dump(1) + "\n";
}

Gathered gather(const CompareOptions& options, const ResultFile& file, const Json& machine) {
  std::size_t steps = 0;
  for (const int ranks : options.ranks) steps += contestants_for(options, ranks).size();
  steps *= static_cast<std::size_t>(options.runs);
  BenchProgress progress(::isatty(STDERR_FILENO) != 0 ? "/proc/self/fd/2" : "", steps);
  Gathered gathered;
  std::size_t done = 0;
  for (int run = 0; run < options.runs; ++run)
    for (const int ranks : options.ranks)
      for (const Contestant& contestant : in_order(contestants_for(options, ranks), run)) {
        const std::string who = fmt::format("run {} of {}, {} ranks, {} {}", run + 1, options.runs,
                                            ranks, contestant.library, contestant.setting);
        progress.show(done++, who);
        const Measured measured = measure_contestant(options, contestant, run, ranks);
        gathered.samples.insert(gathered.samples.end(), measured.samples.begin(),
                                measured.samples.end());
        // What cannot be kept now fails once more, and is told, at the end.
        if (file.keeps() && !gathered.samples.empty())
          (void)file.keep(document_of(options, machine, gathered.samples));
        if (interruption() != 0) return gathered;
        if (measured.complaint.empty()) continue;
        progress.clear();
        fmt::print("# {}: {} ({} cells came)\n", who, measured.complaint, measured.samples.size());
        std::fflush(stdout);
        if (contestant.library == "tutti") ++gathered.own_failures;
      }
  for (const TimedCell& sample : gathered.samples)
    if (sample.library == "tutti") gathered.wrong += sample.wrong;
  return gathered;
}

int tell_interrupted(const CompareOptions& options, std::size_t samples) {
  const int code = 128 + interruption();
  if (samples == 0)
    return complain(kCompareCommand, "interrupted before anything was measured", code);
  return complain(kCompareCommand,
                  fmt::format("interrupted; the {} samples measured so far are {}", samples,
                              options.json.empty() ? "in the tables" : "in " + options.json),
                  code);
}

int compare(const CompareOptions& options) {
  catch_interruptions();
  tell_missing(options);
  const ResultFile file(options.json);
  const Json machine = machine_json();
  const Gathered gathered = gather(options, file, machine);
  // What an earlier run has left in the file is worth more than nothing.
  if (interruption() != 0 && gathered.samples.empty()) return tell_interrupted(options, 0);
  fmt::print("{}", wrong_lines(gathered.samples));
  const std::vector<Ratio> ratios = ratios_of(gathered.samples);
  fmt::print("# tutti bench compare: {}, {}, {} run(s), median\n", options.wire,
             options.cold ? "buffers touched between iterations (cold)" : "warm", options.runs);
  fmt::print("{}#\n{}#\n{}", means_table(ratios), cells_table(ratios), close_table(ratios));
  if (Status status = file.finish(document_of(options, machine, gathered.samples)); !status.ok())
    return complain(kCompareCommand, status.annotate("--json"));
  if (interruption() != 0) return tell_interrupted(options, gathered.samples.size());
  if (gathered.wrong > 0)
    return complain(kCompareCommand, fmt::format("{} elements were wrong", gathered.wrong),
                    kFailed);
  return gathered.own_failures > 0 ? kFailed : kDone;
}

}  // namespace

CompareCommand make_compare(CLI::App& bench) {
  struct State {
    CompareWords words;
    CompareOptions options;
  };
  auto state = std::make_shared<State>();
  CLI::App* parser =
      bench.add_subcommand("compare", "beside Open MPI, MPICH and Gloo: one table of ratios");
  CompareWords& words = state->words;
  CompareOptions& options = state->options;
  parser->add_option("-n,--ranks", words.ranks, "numbers of ranks, with commas (default 2,4,8)");
  parser->add_option("--collectives", words.collectives,
                     "with commas (default: the six that all peers have)");
  parser->add_option("-b,--begin", options.first, "smallest size (default 4)");
  parser->add_option("-e,--end", options.last, "largest size (default 64M)");
  parser->add_option("-f,--factor", options.factor, "step between sizes (default 4)");
  parser->add_option("--runs", options.runs, "how often everything is done (default 5)")
      ->check(between(1, 1000));
  parser->add_option("--memory", words.memory, "symmetric, plain or both (default both)");
  parser->add_option("--transport", words.transport,
                     "shm, tcp or ofi (libfabric), on this host (default shm)");
  parser->add_option("--peers", words.peers, "openmpi, mpich, gloo (default: all that are there)");
  parser->add_flag("--hosts", options.hosts,
                   "between the network namespaces that bench/hosts made");
  parser->add_option("--each", options.each, "with --hosts: ranks on each of them (default 1)")
      ->check(between(1, 64));
  parser->add_flag("--back-to-back", options.back_to_back,
                   "time blocks of calls without a barrier between them: what a link sustains");
  parser->add_flag("--cold", options.cold, "touch the buffers between iterations (default: warm)");
  parser->add_option("--budget", words.budget, "time per cell (default 25ms)");
  parser->add_option("--limit", words.limit, "seconds for one start of one peer (default 120)");
  parser->add_option("--json", options.json, "write samples and ratios here");
  parser->footer(kCompareFooter);
  return {parser, [state] {
            if (Status status = understand(state->words, state->options); !status.ok())
              return complain(kCompareCommand, status);
            return compare(state->options);
          }};
}

}  // namespace tutti::tool
