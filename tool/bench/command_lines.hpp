// tool/bench/command_lines.hpp - how each contestant of a comparison is started: pure.
#pragma once

#include <string>
#include <vector>

#include "tool/bench/contestants.hpp"
#include "tool/bench/subprocess.hpp"

namespace tutti::tool {

// What a start needs besides its options.
struct Premises {
  std::string programs;  // folder of tutti and of the peers' programs
  int ranks = 2;
  std::vector<int> cpus;  // that ranks may use
  std::string meeting;    // a file of zeros, for bench::Meeting
  std::string folder;     // an empty one, for this start alone
  std::string secret;     // a file with the job's secret (hosts)
  std::string agent;      // what starts Open MPI's daemons (hosts)

  bool crowded() const { return ranks > static_cast<int>(cpus.size()); }
};

// One for most; one per rank where nothing else starts them.
std::vector<CommandLine> command_lines(const CompareOptions& options, const Contestant& contestant,
                                       const Premises& premises);

// A script that Open MPI calls as it would call ssh: HOST COMMAND… in the namespace with that
// address, under a host name of its own.
extern const char* const kHostAgent;

}  // namespace tutti::tool
