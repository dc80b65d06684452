// tool/run/spawn.hpp - one rank as a process: started so that it cannot outlive the launcher.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "core/sockets.hpp"
#include "tutti/status.hpp"

namespace tutti::tool {

// What is alike for all ranks.
struct SpawnOptions {
  std::string path;  // of the program, resolved
  std::vector<std::string> arguments;
  std::vector<int> inherited;  // descriptors that the ranks are to see
  sigset_t signal_mask{};      // as it was before the launcher changed it
  rlimit open_files{};         // likewise
};

// A process, leader of its own process group, and the launcher's ends of its pipes.
struct Child {
  pid_t pid = -1;
  Descriptor death;  // a pidfd: readable when the process has ended
  Descriptor out;
  Descriptor err;
};

// Looks in PATH as a shell does. Code::invalid_argument when there is nothing to run.
Result<std::string> find_program(const std::string& name);

// Starts the program with exactly `environment` ("NAME=value") and `standard_input`. Returns once
// it runs; an exec that fails is Code::invalid_argument naming the program.
Result<Child> spawn(const SpawnOptions& launch, const std::vector<std::string>& environment,
                    int standard_input);

}  // namespace tutti::tool
