// reduce/kernels.hpp - the vectorised kernels behind fold(), one table per instruction set.
//
// Internal to the room and to its tests, which run every level that the machine has and compare
// bits. Room cuda, whose kernels must agree with these, asks the last two functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "reduce/fold.hpp"

namespace tutti::reduce {

enum class SimdLevel : std::uint8_t { plain, avx2, avx512 };
inline constexpr int kLevels = 3;

// Where a fold's result goes. Bit d of `streaming`: destination d gets non-temporal stores.
struct OperandPlaces {
  void* const* data;  // not a span: kernels call nothing from outside (elements.hpp says why)
  std::size_t count;
  std::uint64_t streaming;
};

struct FoldJob {
  OperandPlaces places;
  const Operand* operands;
  std::size_t operand_count;
  std::size_t begin;  // the elements to fold; where there is streaming, `begin` of each such place
  std::size_t end;    // is at the start of a cache line
  double scalar;      // premul_sum
  int ranks;          // avg
  bool balanced;      // folds that depend on it: sums and products of floats
};

using Kernel = void (*)(const FoldJob& job);
// [dtype][op]; null where the pair has no meaning, and for user. The kernel of `avg` always divides
// and that of `premul_sum` multiplies what is raw; fold() takes `sum` where neither is due.
using KernelTable = std::array<std::array<Kernel, kReduceOps>, kDtypes>;

// Copies with non-temporal stores, and does not fence.
using StreamKernel = void (*)(char* dst, const char* src, std::size_t bytes);

struct Kernels {
  KernelTable folds;
  KernelTable widening_folds;  // null but for the types that are not their own accumulation type
  StreamKernel stream;
};

inline constexpr std::size_t kLineBytes = 64;

// Null when this build has no code for the level; does not ask the processor.
const Kernels* plain_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();

// Whether this build and this processor can run `level`, and the best that they can.
bool can_run(SimdLevel level);
SimdLevel best_level();

const Kernels& kernels_at(SimdLevel level);  // only when can_run(level)
inline const Kernels& best_kernels() {
  static const Kernels& kernels = kernels_at(best_level());
  return kernels;
}

// fold(), fold_to() and copy() at a given level; only when can_run(level).
void fold_at(SimdLevel level, const Folding& folding, void* dst, std::span<const Operand> operands,
             std::size_t count);
void fold_to_at(SimdLevel level, const Folding& folding, std::span<void* const> destinations,
                std::span<const Operand> operands, std::size_t count, Stores stores);
void copy_at(SimdLevel level, void* dst, const void* src, std::size_t bytes, Stores stores);

// Copies to `offset` in every place, which may be `src` itself; does not fence.
void copy_to_places(const Kernels& kernels, const OperandPlaces& places, const void* src,
                    std::size_t offset, std::size_t bytes);
// Makes streaming stores visible before later ones. Nothing to do for ordinary ones.
void fence_streams();

// The fold of ReduceOp::user: calls the function block by block, always in plain code.
void fold_by_user(const Kernels& kernels, const Folding& folding, const OperandPlaces& places,
                  std::span<const Operand> operands, std::size_t count);

// What a kernel is to do for a fold: avg divides at the end only, premul_sum multiplies what is raw
// only; in between both are sums.
ReduceOp kernel_op(const Folding& folding, std::span<const Operand> operands);
// Whether a balanced fold has other bits than one from the left; functions of the user's aside.
bool depends_on_shape(Dtype dtype, ReduceOp op);
// Whether the fold leaves its one operand as it is, so that it is merely copied, NaNs bit by bit.
bool is_plain_copy(const Folding& folding, std::span<const Operand> operands);

}  // namespace tutti::reduce
