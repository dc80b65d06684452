// tool/bench/contestants.hpp - who takes part in a comparison, and how each is started.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tool/bench/ratios.hpp"
#include "tool/bench/subprocess.hpp"
#include "tutti/status.hpp"

namespace tutti::tool {

struct CompareOptions {
  std::vector<int> ranks = {2, 4, 8};
  std::vector<Collective> collectives;
  std::vector<std::size_t> sizes;
  std::string first = "4";
  std::string last = "64M";
  std::string factor = "4";
  int runs = 5;
  std::vector<std::string> memories = {"symmetric", "plain"};
  std::string wire = "shm";  // or tcp, or ofi
  bool hosts = false;        // between the network namespaces of bench/hosts …
  int each = 1;              // … so many ranks on each
  bool cold = false;
  bool back_to_back = false;
  double budget_us = 25e3;
  std::chrono::seconds limit{120};  // for one start of one contestant
  std::vector<std::string> peers;   // empty: all that are there
  std::string json;
};

// tutti with one kind of memory, or a peer with one setting.
struct Contestant {
  std::string library;
  std::string setting;
  std::vector<Collective> collectives;
  std::vector<std::size_t> sizes;
  std::string words;  // of a peer's setting
};

// The folder of this program, where the peers' programs lie too.
std::string own_folder();
// "peer_gloo was not built", or nothing.
std::string missing(const std::string& peer);
// Code::invalid_argument where there is nobody to compare with, or no host to run on: it says what to
// install, to build or to make.
Status check_premises(const CompareOptions& options);

// Those that exist for this number of ranks, tutti first.
std::vector<Contestant> contestants_for(const CompareOptions& options, int ranks);

// What one start gave. A peer that stopped half way still counts with what came before.
struct Measured {
  std::vector<TimedCell> samples;
  std::string complaint;  // empty: it came to its end
};
Measured measure_contestant(const CompareOptions& options, const Contestant& contestant, int run,
                            int ranks);

// The lines that a peer's program printed; anything else in between is left out.
std::vector<TimedCell> parse_points(const std::string& output);

}  // namespace tutti::tool
