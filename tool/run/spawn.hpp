// tool/run/spawn.hpp - a program as a process that cannot outlive the one that started it.
//
// The keeper calls start_program; what a launcher wants of it goes there by message (keeper.hpp).
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
  std::vector<int> inherited;  // descriptors that the ranks are to see, under the same numbers
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

struct Pipe {
  Descriptor read;
  Descriptor write;
};
Result<Pipe> make_pipe();

// Looks in PATH as a shell does. Code::invalid_argument when there is nothing to run.
Result<std::string> find_program(const std::string& name);

// Standard input, output and error, then those of launch.inherited, in that order. None of them has a
// number of launch.inherited.
using GivenDescriptors = std::vector<int>;

// The process, or what went wrong with it.
struct Started {
  pid_t pid = -1;
  int fork_error = 0;
  int exec_error = 0;
};

// Starts the program with exactly `environment` ("NAME=value"). Returns once it runs. One thread only.
Started start_program(const SpawnOptions& launch, const std::vector<std::string>& environment,
                      const GivenDescriptors& given);
Status failure_of(const Started& started, const std::string& path);

}  // namespace tutti::tool
