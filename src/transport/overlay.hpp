// transport/overlay.hpp - the few links of a rank that are always there when all others are made at
// their first use.
//
// Ranks stand in a ring, and each is linked to those at distance 1, 4, 16, 64 … on both sides: 2·⌈log₄ n⌉
// at most. Over these links ranks hear that others live, and news goes round, from link to link: to
// everybody in log₄ n steps or so. Schedules by powers of two (recursive doubling, trees, bruck, a ring)
// find half of their links there.
//
// One that is gone is skipped: whoever stands behind it takes its place, on that side of that distance. So
// those who are left stay connected, whoever went.
#pragma once

#include <functional>
#include <vector>

namespace tutti::transport {

// Of `rank` among `ranks`, ascending. The same pairs from both sides, as long as nobody is absent.
std::vector<int> overlay_neighbours(int rank, int ranks,
                                    const std::function<bool(int rank)>& is_absent);

}  // namespace tutti::transport
