// train/overlap_judge.hpp - one rank's part in the overlap of a step.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tutti/train/overlap.hpp"

namespace tutti::train {

// `last_joined[i]`: when the last rank had joined collective i, on rank 0's clock; `offset`: of this rank's.
RankOverlap judge_rank(const StepTimes& times, const std::vector<std::int64_t>& last_joined,
                       std::int64_t offset);

// The fields in their order, to be summed and compared. A share that is hidden is the better the larger: of
// that the smallest counts, so it is turned round in `for_max`.
inline constexpr std::size_t kOverlapFields = sizeof(RankOverlap) / sizeof(double);
using OverlapFields = std::array<double, kOverlapFields>;
OverlapFields fields_of(const RankOverlap& rank);
RankOverlap from_fields(const OverlapFields& fields);
OverlapFields for_max(OverlapFields fields);

}  // namespace tutti::train
