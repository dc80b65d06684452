// cuda/update_job.hpp - an optimizer's arithmetic on device memory: what a launch is told.
//
// Plain data, read alike by host code and by kernels, as job.hpp. Addresses are the device's and
// aligned as their elements are; arrays that begin at multiples of 16 are quicker.
#pragma once

#include <cstdint>

#include "reduce/fixed_point.hpp"
#include "reduce/update_formulas.hpp"

namespace tutti::cuda {

// Elements [first, first + count) of all arrays, with one of the job's sets of factors.
struct UpdatePiece {
  std::uint64_t first;
  std::uint64_t count;
  std::uint32_t factors;
  std::uint32_t spare;
};

// What many small parameters need is one launch, not one each.
inline constexpr int kMostPieces = 96;
inline constexpr int kMostFactors = 16;

// AdamW: moments are exp_avg and exp_avg_sq. SGD: the momentum alone.
template <class Factors>
struct UpdateJob {
  std::uint64_t weights;  // f32, as all of them
  std::uint64_t gradient;
  std::uint64_t moments[2];
  std::int32_t piece_count;
  std::int32_t factor_count;
  UpdatePiece pieces[kMostPieces];
  Factors factors[kMostFactors];
};
using AdamWJob = UpdateJob<reduce::AdamWFactors>;
using SgdJob = UpdateJob<reduce::SgdFactors>;
static_assert(sizeof(AdamWJob) <= 4096 && sizeof(SgdJob) <= 4096, "a launch's parameters");

// f32 to bf16 or f16, rounded to nearest even, or back.
struct ConvertJob {
  std::uint64_t from;
  std::uint64_t to;
  std::uint64_t count;
  std::uint64_t is_f16;
};

// to += from; f32. A NaN that is computed is the canonical one.
struct AddJob {
  std::uint64_t from;
  std::uint64_t to;
  std::uint64_t count;
};

// What is found out about gradients. To be zero before; several launches may add to one.
struct GradientFindings {
  std::uint64_t limbs[reduce::kLimbs];  // the sum of squares: reduce/fixed_point.hpp
  // count − i where element i is the first that is not finite; 0: there is none.
  std::uint64_t not_finite;
};
// f32. Sums: the squares of those that are finite, added exactly.
struct InspectJob {
  std::uint64_t values;
  std::uint64_t count;
  std::uint64_t findings;  // a GradientFindings
};

}  // namespace tutti::cuda
