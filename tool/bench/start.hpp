// tool/bench/start.hpp - how the ranks of a benchmark come to be.
//
//   inside a job (tutti run, torchrun, mpirun, srun)   this process is one of its ranks
//   --transport inproc                                 threads of this process
//   otherwise                                          processes, started as `tutti run` does it
#pragma once

#include <string>
#include <vector>

#include "tool/bench/options.hpp"

namespace tutti::tool {

// `words` is the command line from "bench" on, for ranks that have to be started. Returns the exit
// code.
int start_bench(BenchOptions options, const std::vector<std::string>& words);

}  // namespace tutti::tool
