// trace/run.hpp - the traces of all ranks of one job, on one clock.
//
//   auto run = load_run("traces", "");
//   if (!run.ok()) return run.status();   // names the file
//   for (const RankTrace& rank : run->ranks) …
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trace/trace_file.hpp"

namespace tutti::trace {

// How a rank's clock was set against the first rank's.
struct Alignment {
  std::int64_t offset_ns = 0;       // was added to all its times
  std::int64_t uncertainty_ns = 0;  // it may be wrong by so much; -1: nothing bounds it
};

struct TracedRun {
  std::string job;
  int size = 1;                  // ranks of the job
  std::vector<RankTrace> ranks;  // by rank; those whose file is there. Times: the first one's clock
  std::vector<Alignment> alignments;
  std::vector<int> missing;
  std::int64_t begin_ns = 0;  // of everything that was noted
  std::int64_t end_ns = 0;
};

// Called with (files read, files in all).
using Progress = std::function<void(std::size_t, std::size_t)>;

// Reads d/rank-*.trace. `job`: which one, where the folder holds several; empty: the only one.
// invalid_argument: no folder, nothing in it, several jobs, two files of one rank.
Result<TracedRun> load_run(const std::string& folder, const std::string& job,
                           const Progress& progress = {});
// The same from traces that were read already.
Result<TracedRun> make_run(std::vector<RankTrace> traces, const std::string& job,
                           const std::string& folder = "the folder");

// What to add to each trace's clock to get the first one's. Ranks with the same clock identity have
// one offset. Others are bounded by what no collective allows: that it ended on one rank before
// another had begun it.
std::vector<Alignment> align_clocks(std::span<const RankTrace> ranks);

}  // namespace tutti::trace
