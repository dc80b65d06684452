#include "cuda/reduction.hpp"

#include <array>
#include <span>

#include "core/check.hpp"
#include "reduce/kernels.hpp"
#include "tutti/dtypes.hpp"

namespace tutti::cuda {

bool has_kernel(const reduce::Folding& folding) { return folding.reduction.op != ReduceOp::user; }

void set_reduction(Fold& fold, const reduce::Folding& folding) {
  TUTTI_CHECK(has_kernel(folding) && fold.operand_count >= 1 && fold.operand_count <= kMostRanks);
  std::array<reduce::Operand, kMostRanks> operands;
  const auto count = static_cast<std::size_t>(fold.operand_count);
  for (std::size_t k = 0; k < count; ++k) operands[k].raw = fold.operands[k].raw != 0;
  const std::span<const reduce::Operand> used(operands.data(), count);
  fold.op = static_cast<std::uint8_t>(reduce::kernel_op(folding, used));
  fold.copies = reduce::is_plain_copy(folding, used) ? 1 : 0;
  fold.scalar = folding.reduction.scalar;
  fold.ranks = folding.ranks;
  fold.widens = folding.widens ? 1 : 0;
  fold.balanced =
      folding.balanced && count > 3 && reduce::depends_on_shape(folding.dtype, folding.reduction.op)
          ? 1
          : 0;
}

Dtype kernel_dtype(Dtype dtype, ReduceOp op) {
  const bool sign_matters = op == ReduceOp::min || op == ReduceOp::max || op == ReduceOp::avg;
  if (info_of(dtype).kind != DtypeKind::integer || sign_matters) return dtype;
  const auto natural = find_dtype([&](const DtypeInfo& info) {
    return info.kind == DtypeKind::natural && info.bytes == info_of(dtype).bytes;
  });
  TUTTI_CHECK(natural.has_value());
  return *natural;
}

}  // namespace tutti::cuda
