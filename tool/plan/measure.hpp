// tool/plan/measure.hpp - times of many cells by real rank processes: what calibrate fits and
// validate holds predictions against.
//
//   launcher                         ranks (tutti plan measure, hidden)
//   request.json ──▶ launch_job ──▶  every cell in turn, over and over until the time is up,
//   result.json  ◀────────────────   by bench/protocol.hpp; rank 0 writes
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

// Every algorithm of every collective that exists for this many ranks on one host.
std::vector<MeasuredCell> cells_for(int ranks, const std::vector<std::size_t>& sizes);

// A folder of one's own, removed at the end.
class WorkFolder {
 public:
  WorkFolder();
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  const std::string& path() const { return path_; }
  bool ok() const { return !path_.empty(); }

 private:
  std::string path_;
};

// Starts ranks on this host and fills in the times. `tuning`: what TUTTI_TUNING is for them.
struct MeasureJob {
  int ranks = 2;
  double seconds = 10;  // for the cells; those that nobody came to keep 0 s
  std::string tuning = "auto";
  std::string transport = "shm";
  std::string label;  // for the progress: "2 ranks"
};
inline constexpr double kJobSeconds = 0.5;  // that a job takes besides
// After an interruption (tool/interruption.hpp) a failure; the cells have what was measured until
// then.
Status measure_cells(const WorkFolder& folder, const MeasureJob& job,
                     std::vector<MeasuredCell>& cells);
// The table that the last job with tuning "measure" left in the folder.
Result<tuner::Machine> measured_machine(const WorkFolder& folder);

// The hidden subcommand that ranks are started with.
struct MeasureWords {
  std::string request;
  std::string terminal;
};
int measure_as_rank(const MeasureWords& words);

}  // namespace tutti::tool::plan
