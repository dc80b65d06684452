#include "transport/overlay.hpp"

#include <algorithm>

namespace tutti::transport {

std::vector<int> overlay_neighbours(int rank, int ranks,
                                    const std::function<bool(int rank)>& is_absent) {
  std::vector<int> found;
  const auto look = [&](int distance, int direction) {
    for (int steps = distance; steps < ranks; ++steps) {
      const int peer = (rank + direction * steps % ranks + ranks) % ranks;
      if (peer == rank || is_absent(peer)) continue;
      found.push_back(peer);
      return;
    }
  };
  for (long distance = 1; distance < ranks; distance *= 4)
    for (const int direction : {1, -1}) look(static_cast<int>(distance), direction);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace tutti::transport
