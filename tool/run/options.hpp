// tool/run/options.hpp - what `tutti run` was asked for.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tool/run/hosts.hpp"

namespace tutti::tool {

struct RunOptions {
  int ranks = 1;  // on this host
  std::vector<std::string> program;
  bool tee = false;
  bool prefixes = true;  // [rankN] before each line on a terminal
  std::string log_dir;
  bool makes_groups = true;  // the ranks are going to make a group of all of them
  std::chrono::milliseconds grace{5000};
  bool with_switch = false;    // that folds (tutti switch), beside rank 0
  bool leave_daemons = false;  // what left its rank's process group is not killed at the end
  int max_restarts = 0;        // after failures; node 0's counts
  int restart = 0;  // the number that the first attempt has: of a launcher that is restarted

  int nodes = 1;
  int node_rank = 0;
  std::string rendezvous;  // empty: one host
  std::string secret_file;
  std::chrono::milliseconds join_timeout{60000};
  // Node 0 then serves at every address of its host, at any port where the rendezvous has port 0,
  // and says which.
  std::function<void(int port)> on_serving;

  std::vector<Host> hosts;               // start a launcher on each of them
  std::string remote_shell;              // empty: ssh, and none for this host
  std::vector<std::string> environment;  // "NAME=value", to add on every host
  std::string json;                      // file for the report; empty: none
};

}  // namespace tutti::tool
