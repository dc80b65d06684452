// ReduceOp::user. The function sees the dtype itself, so 16- and 8-bit floats are rounded at every
// application, not once per fold: what the function does inside is its own affair.
#include <algorithm>
#include <cstring>

#include "core/check.hpp"
#include "reduce/kernels.hpp"

namespace tutti::reduce {
namespace {
// Two of these live on the stack and should stay in the first-level cache with one operand's block.
constexpr std::size_t kFoldBlockBytes = 4096;
}  // namespace

void fold_by_user(const Kernels& kernels, const Folding& folding, const OperandPlaces& places,
                  std::span<const Operand> operands, std::size_t count) {
  const UserReduction* user = folding.reduction.user;
  TUTTI_CHECK(user != nullptr && user->function != nullptr && !folding.widens);
  alignas(64) char buffers[2][kFoldBlockBytes];
  const std::size_t element = size_of(folding.dtype);
  const std::size_t block = kFoldBlockBytes / element;

  for (std::size_t at = 0; at < count; at += block) {
    const std::size_t elements = std::min(block, count - at);
    const std::size_t bytes = elements * element;
    const auto part = [&](const void* base) {
      return static_cast<const char*>(base) + at * element;
    };
    // inout = in ∘ inout with the lower rank as `in`: the accumulated value goes in on the left and
    // the result lands in the copy of the next operand. Copies, so that a place may be an operand.
    char* acc = buffers[0];
    char* next = buffers[1];
    std::memcpy(acc, part(operands[0].data), bytes);
    for (const Operand& operand : operands.subspan(1)) {
      std::memcpy(next, part(operand.data), bytes);
      user->function(acc, next, elements, folding.dtype, user->context);
      std::swap(acc, next);
    }
    copy_to_places(kernels, places, acc, at * element, bytes);
  }
}

}  // namespace tutti::reduce
