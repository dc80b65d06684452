// plan/cluster.hpp - a described set of machines: how many ranks, what they compute with, how they
// are linked. A value; docs/formats/cluster.md has its JSON.
//
//   auto cluster = preset_cluster("h100-ib400");
//   cluster->within.bandwidth    bytes/s that one rank moves to a rank of its own host
//   cluster->between.bandwidth   bytes/s that one rank moves to a rank of another host
//
// Thread-safety  a value; const methods may run at once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/machine.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::plan {

// How hosts hang together.
enum class Fabric : std::uint8_t { flat, hosts, fat_tree, torus_2d };
std::string_view to_string(Fabric fabric) noexcept;
std::optional<Fabric> parse_fabric(std::string_view word) noexcept;

// One rank's way to others: α, o and 1/β of the textbooks.
struct Wire {
  double latency = 0;    // s, until a short message is there, handling at both ends included
  double overhead = 0;   // s, what a message takes from the core that handles it, at either end
  double bandwidth = 0;  // bytes/s, one direction

  friend bool operator==(const Wire&, const Wire&) = default;
};

// What a rank computes with; 0: not known.
struct Processor {
  double peak_flops = 0;    // FLOP/s, dense, of the training type (bf16)
  double efficiency = 0;    // share of the peak that large matrix products reach: the MFU aimed at
  double memory_bytes = 0;  // of one rank
  double memory_bandwidth = 0;  // bytes/s
  double reduce_bandwidth = 0;  // bytes/s folded, a += b, by the bytes of b

  friend bool operator==(const Processor&, const Processor&) = default;
};

// How far measured times of one algorithm lay from the machine model's, by size: calibration
// leaves these beside the machine, at a few sizes and numbers of ranks.
struct Correction {
  struct Point {
    double bytes = 0;
    double ratio = 1;  // measured / modelled
    friend bool operator==(const Point&, const Point&) = default;
  };
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::direct;
  int ranks = 2;
  std::vector<Point> points;  // by rising bytes

  friend bool operator==(const Correction&, const Correction&) = default;
};

struct Cluster {
  std::string name;
  std::string source;  // where the figures come from: a data sheet, "measured 2026-…"
  Fabric fabric = Fabric::hosts;
  int ranks_per_host = 1;
  int max_ranks = 0;  // 0: as many as are asked for
  Wire within;        // between ranks of a host
  Wire between;       // between ranks of different hosts; torus_2d: its latency counts per hop
  double host_bandwidth =
      0;  // bytes/s that a host's ranks send elsewhere together; 0: each its own
  double oversubscription = 1;        // fat_tree: uplinks carry 1/this of what hosts could send
  int hosts_per_switch = 0;           // fat_tree: hosts under one leaf
  bool in_network_reduction = false;  // switches fold, as SHARP does
  Processor processor;
  // What was measured, for a cluster of one machine or a few: the tuner's own figures. Where it is
  // there, predictions of collectives read it instead of the wires.
  std::optional<tuner::Machine> machine;
  std::vector<Correction> corrections;  // of the machine's predictions

  // What a rank sends to other hosts while its whole host sends: its share of the way out.
  double share_between() const;
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

// The built-in ones, in the order in which they are listed to users.
const std::vector<Cluster>& preset_clusters();
// Code::invalid_argument lists the names that there are.
Result<Cluster> preset_cluster(std::string_view name);

// Code::invalid_argument names the first field that contradicts another or lies outside its range.
Status check_cluster(const Cluster& cluster);

// docs/formats/cluster.md: quantities are strings with their unit ("25 GB/s", "1.5 us"). An unknown
// field, a missing unit or a contradiction is an error that names it.
Result<Cluster> parse_cluster(std::string_view json);
std::string to_json(const Cluster& cluster);

}  // namespace tutti::plan
