// tutti bench - what the collectives reach on this machine, beside what it could do at best.
#include "tool/command.hpp"

#include <CLI/CLI.hpp>
#include <memory>

#include "tool/bench/compare.hpp"
#include "tool/bench/start.hpp"
#include "tool/numbers.hpp"

namespace tutti::tool {
namespace {

constexpr const char* kBenchFooter = R"(Examples:
  tutti bench all_reduce -n 4 -b 4 -e 64M -f 4
  tutti bench all_reduce -n 2 --algorithm all --json all_reduce.json
  tutti bench all -n 4                       every collective, and a summary
  tutti run -n 4 tutti bench all_reduce      the ranks of a job that is there already
  tutti bench all_reduce -n 4 --device cuda  on one GPU, or on several
  tutti bench compare -n 2,4                 beside Open MPI, MPICH and Gloo

Starts its own ranks, or uses the job that it is started in. Time of an iteration: the slowest rank,
after a barrier that is not tutti's; shown are median and p99. Across hosts there is no memory for
such a barrier: there the ranks meet by tutti's own barrier, outside of what is timed, and
the times are gathered after the loop. floor: the share of what the machine could do at best, measured
in the same run. docs/formats/bench.md defines every column. Exit code 1: a wrong element or a rank
that failed; 2: a wrong command line.
)";

void add_options(CLI::App& bench, BenchWords& words, BenchOptions& options) {
  bench.add_option("collective", words.collectives,
                   "all_reduce, broadcast, …, a list of them with commas, or all");
  bench.add_option("-n,--ranks", options.ranks, "ranks (default: one per core, at least 2)")
      ->check(between(1, kMostBenchRanks))
      ->take_last();  // a launcher says it once more
  bench.add_option("-b,--begin", words.first, "smallest size, with K, M or G (default 4)");
  bench.add_option("-e,--end", words.last, "largest size (default 64M)");
  bench.add_option("-f,--factor", words.factor, "step between sizes (default 4; all: 16)");
  bench.add_option("--transport", words.transport,
                   "shm, tcp, or inproc: ranks are threads (default shm; in a job: the job's)");
  bench.add_option("--algorithm", words.algorithm,
                   "one by name, or all: each one that there is (default: the library's choice)");
  bench.add_option("--memory", words.memory, "symmetric or plain (default symmetric)");
  bench.add_option("--device", words.device,
                   "cpu, or cuda: ranks share the GPUs that there are (default cpu)");
  bench.add_flag("--mps", options.mps,
                 "with a private MPS daemon, so that they run there together");
  bench.add_option("--dtype", words.dtype, "f32, bf16, i64, … (default f32)");
  bench.add_option("--op", words.op, "sum, prod, min, max, avg, … (default sum)");
  bench.add_option("--order", words.order,
                   "in which ranks' contributions are folded: any, rank or tree (default any)");
  bench.add_option("--root", options.root, "of broadcast, reduce, gather, scatter (default 0)")
      ->check(between(0, kMostBenchRanks - 1));
  bench.add_option("--placement", words.placement,
                   "in, out, both, or common: as peers have it too (default both)");
  bench.add_option("--pin", words.pin,
                   "what a core of its own is for, where there are enough: the calling thread, or "
                   "the process with all of its threads (default thread)");
  bench.add_flag("--warm", options.warm, "leave the buffers alone between iterations");
  bench.add_flag("--check", options.check,
                 "check every iteration exactly (else: one per size), and count wrong elements");
  bench.add_flag("--back-to-back", options.effort.back_to_back,
                 "time blocks of calls without a barrier between them: what a link sustains");
  bench.add_option("--json", options.json,
                   "write the results here, as they come; - is standard output, at the end");
  bench.add_flag("--wide", options.wide, "all columns, however narrow the window");
  bench
      .add_option("--iters", options.effort.iterations,
                  "iterations of each size (default: as many as the budget allows)")
      ->check(between(1, bench::Meeting::kMostIterations));
  bench.add_option("--budget", words.budget, "time per size and form (default 100ms)");
  // For ranks that this command starts itself.
  bench.add_flag("--as-rank", options.is_rank)->group("");
  bench.add_option("--terminal", options.terminal)->group("");
  bench.add_flag("--rows-to-terminal", options.rows_to_terminal)->group("");
  bench.add_option("--columns", options.columns)->group("");
}

}  // namespace

Command make_bench(CLI::App& app, std::vector<std::string> words) {
  struct State {
    BenchWords words;
    BenchOptions options;
  };
  auto state = std::make_shared<State>();
  CLI::App* bench = app.add_subcommand(
      "bench", "measure collectives: bench all_reduce, bench all, bench compare");
  add_options(*bench, state->words, state->options);
  bench->footer(kBenchFooter);
  const CompareCommand compare = make_compare(*bench);
  return {bench, [state, compare, words = std::move(words)] {
            if (compare.parser->parsed()) return compare.action();
            if (Status status = understand(state->words, state->options); !status.ok())
              return complain("bench", status);
            return start_bench(state->options, words);
          }};
}

}  // namespace tutti::tool
