// train/kernels.hpp - the arithmetic of an update, element by element.
//
// Every element sees the same IEEE operations (add, multiply, divide, square root; none fused, none
// approximate) whatever its place, the vector width or the tail: a shard gives the same bits as the
// whole. Compiled for several instruction sets and dispatched at run time like reduce's folds.
//
// A NaN that is computed is written as the canonical one, 0x7fc00000.
//
// Buffers        no alignment is assumed; arrays do not overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reduce/update_formulas.hpp"
#include "train/exact_sum.hpp"
#include "tutti/types.hpp"

namespace tutti::train {

using reduce::AdamWFactors;
void adamw(const AdamWFactors& factors, float* weights, const float* gradient, float* exp_avg,
           float* exp_avg_sq, std::size_t count);

using reduce::SgdFactors;
void sgd(const SgdFactors& factors, float* weights, const float* gradient, float* momentum,
         std::size_t count);

// Floats of 16 bits, bf16 or f16, as bit patterns: rounded to nearest even, and back.
void narrow(Dtype dtype, const float* from, std::uint16_t* to, std::size_t count);
void widen(Dtype dtype, const std::uint16_t* from, float* to, std::size_t count);

// The index of the first element that is NaN or infinite; count when there is none.
std::size_t first_not_finite(const float* values, std::size_t count);

// Σ x² of at most kMostSquares elements, exactly: the two numbers in `high_low` add up to it. False where
// it does not fit into two f64, because elements differ by a factor of 2^19 and more, or is not finite.
inline constexpr std::size_t kMostSquares = 1024;
bool square_sums(const float* values, std::size_t count, double* high_low);
// The same of any numbers, one by one; those that are not finite are left out.
void add_squares(const float* values, std::size_t count, ExactSum& sum);

// The same, one element at a time in plain code: what the fast ones are tested against.
namespace reference {
void adamw(const AdamWFactors& factors, float* weights, const float* gradient, float* exp_avg,
           float* exp_avg_sq, std::size_t count);
void sgd(const SgdFactors& factors, float* weights, const float* gradient, float* momentum,
         std::size_t count);
void narrow(Dtype dtype, const float* from, std::uint16_t* to, std::size_t count);
void widen(Dtype dtype, const std::uint16_t* from, float* to, std::size_t count);
std::size_t first_not_finite(const float* values, std::size_t count);
}  // namespace reference

}  // namespace tutti::train
