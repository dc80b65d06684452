// reduce/kernels.hpp - the vectorised kernels behind fold(), one table per instruction set.
//
// Internal to the room and to its tests, which run every level that the machine has and compare
// bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "reduce/fold.hpp"

namespace tutti::reduce {

enum class Level : std::uint8_t { plain, avx2, avx512 };
inline constexpr int kLevels = 3;

struct Job {
  char* dst;
  const Operand* operands;  // not a span: kernels call nothing from outside (elements.hpp says why)
  std::size_t operand_count;
  std::size_t count;
  double scalar;  // premul_sum
  int ranks;      // avg
};

using Kernel = void (*)(const Job& job);
// [dtype][op]; null where the pair has no meaning, and for user. The kernel of `avg` always divides
// and that of `premul_sum` multiplies what is raw; fold() takes `sum` where neither is due.
using KernelTable = std::array<std::array<Kernel, kReduceOps>, kDtypes>;

// Null when this build has no code for the level; does not ask the processor.
const KernelTable* plain_kernels();
const KernelTable* avx2_kernels();
const KernelTable* avx512_kernels();

// Whether this build and this processor can run `level`, and the best that they can.
bool can_run(Level level);
Level best_level();

// fold() at a given level; only when can_run(level).
void fold_at(Level level, const Folding& folding, void* dst, std::span<const Operand> operands,
             std::size_t count);

// The fold of ReduceOp::user: calls the function block by block, always in plain code.
void fold_by_user(const Folding& folding, void* dst, std::span<const Operand> operands,
                  std::size_t count);

// Whether the fold leaves its one operand as it is, so that it is merely copied, NaNs bit by bit.
bool is_plain_copy(const Folding& folding, std::span<const Operand> operands);

}  // namespace tutti::reduce
