// tool/run/environment.hpp - what a rank finds in its environment (docs/formats/environment.md).
#pragma once

#include <string>
#include <vector>

namespace tutti::tool {

// What all launchers of a job know alike, but for first_rank.
struct JobWorld {
  int size = 1;
  int first_rank = 0;  // of this host
  int local_size = 1;
  int nodes = 1;
  int node_rank = 0;
  int restart = 0;  // how often the job was restarted
  int max_restarts = 0;
  std::string job;  // another one in each restart
  std::string store_address;
  // Where an unmodified torch program makes rank 0 listen.
  std::string master_address = "127.0.0.1";
  int master_port = 0;
};

// The launcher's own environment with the rank's variables in it: "NAME=value" each. `returns`: how
// often this rank was lost and started again while the others went on.
std::vector<std::string> rank_environment(const JobWorld& world, int local_rank,
                                          int secret_descriptor, int board_descriptor, int returns);

// The launcher's own environment, as it is.
std::vector<std::string> process_variables();
// What of it the launchers of other hosts are told: PATH, and TUTTI_*, but for what is of this host alone.
std::vector<std::string> variables_for_nodes();

}  // namespace tutti::tool
