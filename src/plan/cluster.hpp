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

namespace tutti::plan {

// How hosts hang together.
enum class Fabric : std::uint8_t { flat, hosts, fat_tree, torus_2d };
std::string_view to_string(Fabric fabric) noexcept;
std::optional<Fabric> parse_fabric(std::string_view word) noexcept;

// One rank's way to others: α, o and 1/β of the textbooks.
struct Wire {
  double latency = 0;    // s, until a short message is there
  double overhead = 0;   // s, what a message takes from the core that handles it
  double bandwidth = 0;  // bytes/s, one direction
};

// What a rank computes with.
struct Processor {
  double peak_flops = 0;        // FLOP/s, dense, of the training type (bf16)
  double efficiency = 0;        // share of the peak that large matrix products reach: the MFU aimed at
  double memory_bytes = 0;      // of one rank
  double memory_bandwidth = 0;  // bytes/s
  double reduce_bandwidth = 0;  // bytes/s folded, a += b, by the bytes of b
};

struct Cluster {
  std::string name;
  std::string source;  // where the figures come from: a data sheet, "measured 2026-…"
  Fabric fabric = Fabric::hosts;
  int ranks_per_host = 1;
  int max_ranks = 0;  // 0: as many as are asked for
  Wire within;        // between ranks of a host
  Wire between;       // between ranks of different hosts
  double oversubscription = 1;      // fat_tree: uplinks carry 1/this of what hosts could send
  int hosts_per_switch = 0;         // fat_tree: hosts under one leaf
  bool in_network_reduction = false;  // switches fold, as SHARP does
  Processor processor;
  // What was measured, for a cluster of one machine or a few: the tuner's own figures. Where it is
  // there, predictions of collectives read it instead of the wires.
  std::optional<tuner::Machine> machine;
};

// The built-in ones, in the order in which they are listed to users.
const std::vector<Cluster>& preset_clusters();
// Code::invalid_argument lists the names that there are.
Result<Cluster> preset_cluster(std::string_view name);

// docs/formats/cluster.md: quantities are strings with their unit ("25 GB/s", "1.5 us"). An unknown
// field, a missing unit or a contradiction is an error that names it.
Result<Cluster> parse_cluster(std::string_view json);
std::string to_json(const Cluster& cluster);

}  // namespace tutti::plan
