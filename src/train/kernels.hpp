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

namespace tutti::train {

using reduce::AdamWFactors;
void adamw(const AdamWFactors& factors, float* weights, const float* gradient, float* exp_avg,
           float* exp_avg_sq, std::size_t count);

using reduce::SgdFactors;
void sgd(const SgdFactors& factors, float* weights, const float* gradient, float* momentum,
         std::size_t count);

// bf16 as bit patterns, rounded to nearest even, and back.
void narrow(const float* from, std::uint16_t* to, std::size_t count);
void widen(const std::uint16_t* from, float* to, std::size_t count);

// The index of the first element that is NaN or infinite; count when there is none.
std::size_t first_not_finite(const float* values, std::size_t count);

// Σ x² of each block of 64 elements, in f64 and in one fixed order that does not depend on the vector
// width; `sums` has ⌈count/64⌉ places. Not finite exactly where an element is not.
void block_squares(const float* values, std::size_t count, double* sums);

// The same, one element at a time in plain code: what the fast ones are tested against.
namespace reference {
void adamw(const AdamWFactors& factors, float* weights, const float* gradient, float* exp_avg,
           float* exp_avg_sq, std::size_t count);
void sgd(const SgdFactors& factors, float* weights, const float* gradient, float* momentum,
         std::size_t count);
void narrow(const float* from, std::uint16_t* to, std::size_t count);
void widen(const std::uint16_t* from, float* to, std::size_t count);
std::size_t first_not_finite(const float* values, std::size_t count);
void block_squares(const float* values, std::size_t count, double* sums);
}  // namespace reference

}  // namespace tutti::train
