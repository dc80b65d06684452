// train/clock_offsets.hpp - how far the ranks' clocks are from rank 0's.
//
// Ranks on one kernel share its steady clock: their offset is 0. Rank 0 plays ping-pong with each of
// the others and believes the shortest round: the answer was read in its middle, give or take half of
// it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "tutti/group.hpp"

namespace tutti::train {

// Collective. `identity`: tutti::clock_identity(). Per rank: what to add to its clock to get rank 0's, in ns.
Result<std::vector<std::int64_t>> measure_offsets(Group& group, const std::string& identity,
                                                  const Clock& clock);

}  // namespace tutti::train
