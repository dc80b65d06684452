// tool/bench/subprocess.hpp - programs of others, run to their end or to a time limit.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tutti::tool {

struct CommandLine {
  std::vector<std::string> words;
  std::vector<std::string> environment;  // "NAME=value", on top of this process's own
};

struct SubprocessResult {
  std::string output;     // standard output of all of them
  std::string complaint;  // last line of their standard error
  int exit_code = 0;      // the first that is not 0; 128 + signal
  bool timed_out = false;
};

// Starts all command lines at once and waits. When the limit is over they are asked to end, and
// killed two seconds later, with whatever they left running; sooner after an interruption
// (tool/interruption.hpp). Call it from one thread only.
SubprocessResult run_together(const std::vector<CommandLine>& commands, std::chrono::seconds limit);

}  // namespace tutti::tool
