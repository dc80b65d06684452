// topology/topology.hpp - small questions about where ranks sit.
//
// Pure: no files, no system calls (topology/discover.hpp looks at this machine). `host_of[r]` is the
// host of rank r; an empty list means that all are on one host.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tutti::topology {

int host_count(std::span<const int> host_of);
// The ranks of each host, ascending; hosts in the order in which their first rank appears.
std::vector<std::vector<int>> ranks_by_host(std::span<const int> host_of);

// Where a rank sits, as far as is known: around its host, and inside of it.
struct Locality {
  std::string rack;  // from the outside in: "row1/rack2"; empty: not said
  int socket = -1;
  int numa = -1;
  std::string gpu;  // its address on the bus; empty: none

  friend bool operator==(const Locality&, const Locality&) = default;
};

// All ranks in an order in which those who share a rack, a host, a socket, a NUMA node follow each other: what
// rings walk along, and trees are built of. Otherwise by number, and what a lower rank is in comes first.
// Empty: as they are numbered. `localities`: empty, or one of each rank.
std::vector<int> walk_of(std::span<const int> host_of, std::span<const Locality> localities = {});
// The same of some of the ranks, which get new numbers: their places in `members`.
std::vector<int> walk_among(std::span<const int> walk, std::span<const int> members);

// rows ≤ columns, rows · columns = n, as near to a square as n allows: 12 → 3 × 4, 7 → 1 × 7.
struct Torus {
  int rows = 1;
  int columns = 1;

  friend bool operator==(const Torus&, const Torus&) = default;
};
Torus near_square(int n);

}  // namespace tutti::topology
