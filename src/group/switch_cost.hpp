// group/switch_cost.hpp - what an all_reduce by this job's switch takes, measured by all of its ranks.
#pragma once

#include "cost/curve.hpp"
#include "group/rank_group.hpp"

namespace tutti::group {

// Collective; the same answer on all ranks, that of the slowest. Takes some 0.1 s where a rank's link has
// 1 Gbit/s. Empty where it was lost meanwhile.
Result<cost::Curve> measure_switch(RankGroup& group, CallOptions call);

}  // namespace tutti::group
