#include "reduce/fold.hpp"

#include <algorithm>
#include <cstring>

#include "core/check.hpp"
#include "reduce/kernels.hpp"

namespace tutti::reduce {
namespace {

bool processor_has(Level level) {
#if defined(__x86_64__)
  switch (level) {
    case Level::plain: return true;
    case Level::avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    case Level::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("f16c");
  }
#endif
  return level == Level::plain;
}

const KernelTable* kernels_of(Level level) {
  switch (level) {
    case Level::plain: return plain_kernels();
    case Level::avx2: return avx2_kernels();
    case Level::avx512: return avx512_kernels();
  }
  return nullptr;
}

// avg divides at the end only, premul_sum multiplies what is raw only; in between both are sums.
ReduceOp kernel_op(const Folding& folding, std::span<const Operand> operands) {
  const ReduceOp op = folding.reduction.op;
  if (op == ReduceOp::avg && !folding.finish) return ReduceOp::sum;
  if (op == ReduceOp::premul_sum &&
      std::none_of(operands.begin(), operands.end(), [](const Operand& x) { return x.raw; }))
    return ReduceOp::sum;
  return op;
}

void fold_with(const KernelTable& table, const Folding& folding, void* dst,
               std::span<const Operand> operands, std::size_t count) {
  TUTTI_CHECK(!operands.empty());
  if (folding.reduction.op == ReduceOp::user) return fold_by_user(folding, dst, operands, count);
  if (is_plain_copy(folding, operands)) {
    if (count > 0) std::memmove(dst, operands[0].data, count * size_of(folding.dtype));
    return;
  }
  const auto op = static_cast<std::size_t>(kernel_op(folding, operands));
  const Kernel kernel = table[static_cast<std::size_t>(folding.dtype)][op];
  TUTTI_CHECK(kernel != nullptr);  // is_sensible(op, dtype) was the caller's to ask
  kernel({static_cast<char*>(dst), operands.data(), operands.size(), count,
          folding.reduction.scalar, folding.ranks});
}

}  // namespace

bool is_plain_copy(const Folding& folding, std::span<const Operand> operands) {
  if (operands.size() != 1 || folding.dtype == Dtype::boolean) return false;
  const ReduceOp op = folding.reduction.op;
  if (op == ReduceOp::avg) return !folding.finish;
  if (op == ReduceOp::premul_sum) return !operands[0].raw;
  return true;
}

bool can_run(Level level) { return kernels_of(level) != nullptr && processor_has(level); }

Level best_level() {
  if (can_run(Level::avx512)) return Level::avx512;
  return can_run(Level::avx2) ? Level::avx2 : Level::plain;
}

void fold_at(Level level, const Folding& folding, void* dst, std::span<const Operand> operands,
             std::size_t count) {
  TUTTI_CHECK(can_run(level));
  fold_with(*kernels_of(level), folding, dst, operands, count);
}

void fold(const Folding& folding, void* dst, std::span<const Operand> operands, std::size_t count) {
  static const KernelTable& table = *kernels_of(best_level());
  fold_with(table, folding, dst, operands, count);
}

}  // namespace tutti::reduce
