// topology/topology.hpp - small questions about where ranks sit.
//
// Pure: no files, no system calls (topology/discover.hpp looks at this machine). `host_of[r]` is the
// host of rank r; an empty list means that all are on one host.
#pragma once

#include <span>
#include <vector>

namespace tutti::topology {

int host_count(std::span<const int> host_of);
// The ranks of each host, ascending; hosts in the order in which their first rank appears.
std::vector<std::vector<int>> ranks_by_host(std::span<const int> host_of);

// rows ≤ columns, rows · columns = n, as near to a square as n allows: 12 → 3 × 4, 7 → 1 × 7.
struct Torus {
  int rows = 1;
  int columns = 1;

  friend bool operator==(const Torus&, const Torus&) = default;
};
Torus near_square(int n);

}  // namespace tutti::topology
