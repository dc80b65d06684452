#include "transport/overlay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace tutti::transport {
namespace {

bool nobody(int) { return false; }

// How many steps it takes from `first` to everybody who is there; -1: somebody is not reached.
int steps_to_all(int first, int ranks, const std::function<bool(int)>& is_absent) {
  std::set<int> reached{first};
  std::vector<int> front{first};
  int steps = 0;
  int present = 0;
  for (int rank = 0; rank < ranks; ++rank) present += !is_absent(rank);
  for (; !front.empty(); ++steps) {
    if (static_cast<int>(reached.size()) == present) return steps;
    std::vector<int> next;
    for (const int rank : front)
      for (const int peer : overlay_neighbours(rank, ranks, is_absent))
        if (reached.insert(peer).second) next.push_back(peer);
    front = std::move(next);
  }
  return -1;
}

TEST(Overlay, is_the_same_from_both_sides) {
  for (int ranks = 1; ranks <= 100; ++ranks)
    for (int rank = 0; rank < ranks; ++rank)
      for (const int peer : overlay_neighbours(rank, ranks, nobody)) {
        ASSERT_NE(peer, rank);
        const auto theirs = overlay_neighbours(peer, ranks, nobody);
        EXPECT_TRUE(std::binary_search(theirs.begin(), theirs.end(), rank))
            << ranks << " ranks: " << rank << " and " << peer;
      }
}

TEST(Overlay, has_as_many_links_as_the_logarithm_and_reaches_all_in_as_many_steps) {
  for (const auto& [ranks, links, steps] :
       {std::tuple(16, 4, 4), std::tuple(256, 8, 8), std::tuple(4096, 12, 12)}) {
    EXPECT_EQ(overlay_neighbours(5, ranks, nobody).size(), static_cast<std::size_t>(links));
    const int most = steps_to_all(0, ranks, nobody);
    EXPECT_GT(most, 0);
    EXPECT_LE(most, steps) << ranks << " ranks";
  }
}

TEST(Overlay, stays_connected_whoever_goes) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 80);
    std::vector<bool> absent(static_cast<std::size_t>(ranks));
    const auto gone = random() % static_cast<unsigned>(ranks);
    for (unsigned i = 0; i < gone; ++i) absent[random() % absent.size()] = true;
    const auto first = std::find(absent.begin(), absent.end(), false) - absent.begin();
    if (first == ranks) continue;
    EXPECT_GE(steps_to_all(static_cast<int>(first), ranks,
                           [&](int rank) { return absent[static_cast<std::size_t>(rank)]; }),
              0)
        << ranks << " ranks, round " << round;
  }
}

}  // namespace
}  // namespace tutti::transport
