// reduce/fold.hpp - the arithmetic of every reduction: one fold of k operands.
//
//   dst[i] = finish( x0[i] ∘ x1[i] ∘ … ∘ xk-1[i] )
//
// folded left to right in the accumulation type (f32 for 16- and 8-bit floats, else the type
// itself) and rounded once, into dst. Raw operands are multiplied by the scalar first (premul_sum);
// `finish` divides by `ranks` (avg). Numerics as tutti/types.hpp says; all code paths agree to the
// bit. A NaN that is computed is the canonical quiet one; one that is merely copied stays as it is.
// A fold that `widens` leaves the rounding out: dst holds elements of the accumulation type. One that is
// `balanced` goes as tutti::ReductionOrder::tree does, by the operands' numbers, instead of from the left:
//
//   fold(0, k),  fold(lo, hi) = fold(lo, mid) ∘ fold(mid, hi),  mid - lo = largest power of two < hi - lo
//
// Buffers        no alignment is assumed. dst may be one of the operands, unless the fold widens;
//                partial overlap is not allowed.
// Thread-safety  pure.
#pragma once

#include <cstddef>
#include <span>

#include "reduce/copy.hpp"
#include "tutti/dtypes.hpp"
#include "tutti/types.hpp"

namespace tutti::reduce {

struct Operand {
  const void* data = nullptr;
  bool raw = false;  // a rank's own input, not yet a partial fold
};

struct Folding {
  Dtype dtype = Dtype::f32;
  Reduction reduction;
  bool finish = false;
  int ranks = 1;        // avg's divisor
  bool widens = false;  // 16- and 8-bit floats into f32; not with a function of the user's
  bool balanced = false;

  // Of an element of dst.
  std::size_t result_bytes() const { return size_of(widens ? accumulation_of(dtype) : dtype); }
};

// 1 ≤ k ≤ kMaxOperands, and is_sensible(op, dtype). A single operand is copied, multiplied or divided as it must
// be.
inline constexpr std::size_t kMaxOperands = std::size_t{1} << 20;
void fold(const Folding& folding, void* dst, std::span<const Operand> operands, std::size_t count);

// Folds once and writes the result to every destination (1…64); each may be one of the operands.
// Streaming stores are used where they help: not into operands, whose lines are here already, and
// only into destinations that lie alike within a cache line (as do buffers that are aligned).
inline constexpr std::size_t kMaxDestinations = 64;
void fold_to(const Folding& folding, std::span<void* const> destinations,
             std::span<const Operand> operands, std::size_t count, Stores stores = Stores::cached);

// fold(), one element at a time in plain code: what the fast paths are tested against.
void fold_reference(const Folding& folding, void* dst, std::span<const Operand> operands,
                    std::size_t count);

}  // namespace tutti::reduce
