// tool/plan/measure.hpp - times of many cells by real rank processes: what calibrate fits and
// validate holds predictions against.
//
//   launcher                            ranks (tutti plan measure, hidden)
//   request ──▶ launch_job, or _fleet ──▶ every cell in turn, over and over until the time is up,
//   result  ◀──── standard output ─────   by bench/protocol.hpp; rank 0 tells
//
// Both are text that goes where tutti run carries it, so that no file has to be seen by two hosts.
//
// Cells are visited in turn, several times, so that a disturbance of the machine hits all alike. A
// visit's time is the lower quartile of its calls, a cell's time the least of its visits: whatever
// else runs only ever adds to it. Of the estimators that were tried on a busy machine (minimum,
// lower quartile and median, of calls and of visits) this is the steadiest but for plain minima,
// which are no time that a user sees.
#pragma once

#include <string>
#include <vector>

#include "plan/cluster.hpp"
#include "tool/plan/where.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace CLI {
class App;
}

namespace tutti::tool::plan {

// Plain memory, out of place where there is such a form, f32, sum, root 0.
struct MeasuredCell {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::direct;
  int ranks = 2;
  std::size_t bytes = 0;
  double seconds = 0;
  int visits = 0;
  double spread = 0;  // how much longer the second fastest visit took; 0 with one visit
};

// Every algorithm of every collective that exists for this many of the ranks.
std::vector<MeasuredCell> cells_for(const Where& where, int ranks,
                                    const std::vector<std::size_t>& sizes);

// Starts ranks and fills in the times.
struct MeasureJob {
  const Where& where;
  int ranks = 2;        // the first of them
  double seconds = 10;  // for the cells; those that nobody came to keep 0 s
  std::string machine;  // the table that they choose by; empty: they measure one
  std::string transport = "shm";
  std::string label;  // for the progress: "2 ranks"
};
inline constexpr double kJobSeconds = 0.5;  // that a job takes besides
// After an interruption (tool/interruption.hpp) a failure; the cells have what was measured until
// then.
Status measure_cells(const MeasureJob& job, std::vector<MeasuredCell>& cells);
// The machine, as groups measure it when they are made.
Result<tuner::Machine> measure_machine(const MeasureJob& job);

// What stands before a result in the ranks' output, where a line may be another's.
inline constexpr std::string_view kResultMark = "tutti plan measure: ";

// The hidden subcommand that ranks are started with.
struct MeasureWords {
  std::string request;
  std::string terminal;
};
int measure_as_rank(const MeasureWords& words);

}  // namespace tutti::tool::plan
