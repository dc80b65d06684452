// tool/run/options.hpp - what `tutti run` was asked for.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tutti::tool {

struct RunOptions {
  int ranks = 1;  // on this host
  std::vector<std::string> program;
  bool tee = false;
  bool prefixes = true;  // [rankN] before each line on a terminal
  std::string log_dir;
  std::chrono::milliseconds grace{5000};

  int nodes = 1;
  int node_rank = 0;
  std::string rendezvous;  // empty: one host
  std::string secret_file;
  std::chrono::milliseconds join_timeout{60000};
};

}  // namespace tutti::tool
