// tool/run/launch.hpp - a whole job, from the first rank to the last line: what `tutti run` does.
#pragma once

#include "tool/run/options.hpp"

namespace tutti::tool {

// Complains on stderr where need be, and returns the exit code. Call it before any thread is
// started.
int launch_job(const RunOptions& options);

}  // namespace tutti::tool
