// tool/bench/ratios.hpp - times of several libraries, run by run, as ratios: pure.
//
// A ratio is peer's time / tutti's time, so more than 1 means that tutti is faster. Only times of
// the same run are divided; the median over runs is what is shown.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "tutti/types.hpp"

namespace tutti::tool {

// One cell of one run.
struct TimedCell {
  int run = 0;
  int ranks = 0;
  std::string library;  // "tutti", "openmpi", …
  std::string setting;  // of a peer; tutti's is the kind of memory
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;
  double median_us = 0;
  std::optional<double> floor_us;
  std::size_t wrong = 0;
};

// One cell over all runs, for one kind of memory.
struct Ratio {
  int ranks = 0;
  std::string memory;
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;
  double tutti_us = 0;
  std::optional<double> floor_us;
  std::map<std::string, double> against_default;  // by peer
  std::map<std::string, double> against_best;
  double against_all = 0;   // the best setting of any peer in each run; 0: no peer ran
  double best_peer_us = 0;  // median over runs of that best
  std::string best_peer;    // who was it most often
};

inline constexpr double kClose = 1.1;  // cells below are listed with their floor

// Samples with wrong elements do not count for a peer.
std::vector<Ratio> ratios_of(const std::vector<TimedCell>& samples);

// Whoever computed wrongly, and where: a line each.
std::string wrong_lines(const std::vector<TimedCell>& samples);
// Geometric means per collective and number of ranks.
std::string means_table(const std::vector<Ratio>& ratios);
// Every cell.
std::string cells_table(const std::vector<Ratio>& ratios);
// The cells below kClose.
std::string close_table(const std::vector<Ratio>& ratios);

Json samples_json(const std::vector<TimedCell>& samples);
Json ratios_json(const std::vector<Ratio>& ratios);

}  // namespace tutti::tool
