// tool/run/launch.hpp - a whole job, from the first rank to the last line: what `tutti run` does.
//
//   launch_job      the ranks of this host
//   launch_fleet    a launcher on each of options.hosts, over a remote shell (fleet.hpp)
//   launch_node     such a launcher's own main: its orders come over standard input (leash.hpp)
//
// Each complains on stderr where need be, and returns the exit code. Call it before any thread is
// started.
#pragma once

#include "tool/run/options.hpp"

namespace tutti::tool {

int launch_job(const RunOptions& options);
int launch_fleet(const RunOptions& options);
int launch_node();

}  // namespace tutti::tool
