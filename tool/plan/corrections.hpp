// tool/plan/corrections.hpp - what calibrate leaves beside the machine's model: how far the measured time of
// each algorithm lies from it, by size and number of ranks. Pure.
#pragma once

#include <span>
#include <vector>

#include "plan/cluster.hpp"
#include "tool/plan/measure.hpp"

namespace tutti::tool::plan {

// Cells of one algorithm and number of ranks stand together, by rising bytes. `cluster` has a machine; corrections
// that it has already are not looked at.
std::vector<tutti::plan::Correction> corrections_of(tutti::plan::Cluster cluster,
                                                    std::span<const MeasuredCell> cells);

}  // namespace tutti::tool::plan
