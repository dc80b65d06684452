#include "topology/topology.hpp"

#include <map>

namespace tutti::topology {

std::vector<std::vector<int>> ranks_by_host(std::span<const int> host_of) {
  std::vector<std::vector<int>> groups;
  std::map<int, std::size_t> place;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const auto [it, is_new] = place.try_emplace(host_of[rank], groups.size());
    if (is_new) groups.emplace_back();
    groups[it->second].push_back(static_cast<int>(rank));
  }
  return groups;
}

int host_count(std::span<const int> host_of) {
  return host_of.empty() ? 1 : static_cast<int>(ranks_by_host(host_of).size());
}

Torus near_square(int n) {
  Torus best{1, n};
  for (int rows = 2; rows <= n / rows; ++rows)
    if (n % rows == 0) best = {rows, n / rows};
  return best;
}

}  // namespace tutti::topology
