// ReduceOp::user. The function sees the dtype itself, so 16- and 8-bit floats are rounded at every
// application, not once per fold: what the function does inside is its own affair.
#include <algorithm>
#include <bit>
#include <cstring>

#include "core/check.hpp"
#include "reduce/kernels.hpp"

namespace tutti::reduce {
namespace {

// A few of these live on the stack and should stay in the first-level cache with one operand's block.
constexpr std::size_t kFoldBlockBytes = 4096;

// One block of all operands, from byte `at` on.
struct UserBlock {
  const UserReduction& user;
  Dtype dtype;
  std::size_t at, elements, bytes;

  void load(char* to, const Operand& operand) const {
    std::memcpy(to, static_cast<const char*>(operand.data) + at, bytes);
  }
  // inout = in ∘ inout: what is on the left goes in, and the result lands on the right.
  void apply(const char* left, char* right) const {
    user.function(left, right, elements, dtype, user.context);
  }
};

// The fold of these operands, in `to`. Copies, so that a place may be an operand.
void fold_block(const UserBlock& block, std::span<const Operand> operands, bool balanced,
                char* to) {
  alignas(64) char left[kFoldBlockBytes];
  if (balanced && operands.size() > 3) {
    const std::size_t half = std::bit_floor(operands.size() - 1);
    fold_block(block, operands.first(half), true, left);
    fold_block(block, operands.subspan(half), true, to);
    return block.apply(left, to);
  }
  block.load(to, operands[0]);
  for (const Operand& operand : operands.subspan(1)) {
    std::memcpy(left, to, block.bytes);
    block.load(to, operand);
    block.apply(left, to);
  }
}

}  // namespace

void fold_by_user(const Kernels& kernels, const Folding& folding, const OperandPlaces& places,
                  std::span<const Operand> operands, std::size_t count) {
  const UserReduction* user = folding.reduction.user;
  TUTTI_CHECK(user != nullptr && user->function != nullptr && !folding.widens);
  alignas(64) char result[kFoldBlockBytes];
  const std::size_t element = size_of(folding.dtype);
  const std::size_t most = kFoldBlockBytes / element;
  for (std::size_t at = 0; at < count; at += most) {
    const std::size_t elements = std::min(most, count - at);
    const UserBlock block{*user, folding.dtype, at * element, elements, elements * element};
    fold_block(block, operands, folding.balanced, result);
    copy_to_places(kernels, places, result, block.at, block.bytes);
  }
}

}  // namespace tutti::reduce
