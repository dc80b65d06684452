#include "reduce/fold.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "reduce/kernels.hpp"
#include "tutti/dtypes.hpp"

namespace tutti::reduce {
namespace {

bool is_operand(const void* place, std::span<const Operand> operands) {
  return std::any_of(operands.begin(), operands.end(),
                     [&](const Operand& x) { return x.data == place; });
}

// Which places get non-temporal stores, and how many elements come before the first whole line
// there. Lines that a fold reads are in the cache when it writes them. Of the other places, those
// stream that begin at the same byte of a line as the first of them: the strips of a fold are cut
// alike for all.
struct Streams {
  std::uint64_t places = 0;
  std::size_t head = 0;
};
Streams streams_of(std::span<void* const> destinations, std::span<const Operand> operands,
                   std::size_t element) {
  Streams streams;
  for (std::size_t d = 0; d < destinations.size(); ++d) {
    const auto address = reinterpret_cast<std::uintptr_t>(destinations[d]);
    const std::size_t head = -address % kLineBytes / element;
    if (address % element != 0 || is_operand(destinations[d], operands)) continue;
    if (streams.places == 0) streams.head = head;
    if (streams.head == head) streams.places |= std::uint64_t{1} << d;
  }
  return streams;
}

// What no kernel does: calling the user's function, and copying.
bool needs_kernel(const Folding& folding, std::span<const Operand> operands) {
  return folding.reduction.op != ReduceOp::user && !is_plain_copy(folding, operands);
}
void fold_without_kernel(const Kernels& kernels, const Folding& folding,
                         const OperandPlaces& places, std::span<const Operand> operands,
                         std::size_t count) {
  if (folding.reduction.op == ReduceOp::user)
    return fold_by_user(kernels, folding, places, operands, count);
  copy_to_places(kernels, places, operands[0].data, 0, count * size_of(folding.dtype));
}

Kernel kernel_of(const Kernels& kernels, const Folding& folding,
                 std::span<const Operand> operands) {
  const auto op = static_cast<std::size_t>(kernel_op(folding, operands));
  const KernelTable& table = folding.widens ? kernels.widening_folds : kernels.folds;
  const Kernel kernel = table[static_cast<std::size_t>(folding.dtype)][op];
  TUTTI_CHECK(kernel != nullptr);  // is_sensible(op, dtype) was the caller's to ask
  return kernel;
}

// The job is written where the kernel reads it: a copy of what was just stored piece by piece waits
// for the stores, which took longer than a small fold itself.
void fold_cached(const Kernels& kernels, const Folding& folding, void* const* places,
                 std::size_t place_count, std::span<const Operand> operands, std::size_t count) {
  TUTTI_CHECK(!operands.empty() && operands.size() <= kMaxOperands);
  if (!needs_kernel(folding, operands))
    return fold_without_kernel(kernels, folding, {places, place_count, 0}, operands, count);
  kernel_of(kernels, folding, operands)({{places, place_count, 0},
                                         operands.data(),
                                         operands.size(),
                                         0,
                                         count,
                                         folding.reduction.scalar,
                                         folding.ranks,
                                         folding.balanced});
}

void fold_streaming(const Kernels& kernels, const Folding& folding,
                    std::span<void* const> destinations, std::span<const Operand> operands,
                    std::size_t count) {
  TUTTI_CHECK(!operands.empty() && operands.size() <= kMaxOperands);
  const Streams streams = streams_of(destinations, operands, folding.result_bytes());
  const OperandPlaces places{destinations.data(), destinations.size(), streams.places};
  if (!needs_kernel(folding, operands)) {
    fold_without_kernel(kernels, folding, places, operands, count);
  } else {
    const Kernel kernel = kernel_of(kernels, folding, operands);
    const std::size_t head = std::min(streams.head, count);
    FoldJob job{{places.data, places.count, 0}, operands.data(), operands.size(), 0, head,
                folding.reduction.scalar,       folding.ranks,   folding.balanced};
    kernel(job);
    job.places = places;
    job.begin = head;
    job.end = count;
    kernel(job);
  }
  fence_streams();
}

void fold_many(const Kernels& kernels, const Folding& folding, std::span<void* const> destinations,
               std::span<const Operand> operands, std::size_t count, Stores stores) {
  TUTTI_CHECK(!destinations.empty() && destinations.size() <= kMaxDestinations);
  if (stores == Stores::streaming)
    return fold_streaming(kernels, folding, destinations, operands, count);
  fold_cached(kernels, folding, destinations.data(), destinations.size(), operands, count);
}

}  // namespace

ReduceOp kernel_op(const Folding& folding, std::span<const Operand> operands) {
  const ReduceOp op = folding.reduction.op;
  if (op == ReduceOp::avg && !folding.finish) return ReduceOp::sum;
  if (op == ReduceOp::premul_sum &&
      std::none_of(operands.begin(), operands.end(), [](const Operand& x) { return x.raw; }))
    return ReduceOp::sum;
  return op;
}

bool depends_on_shape(Dtype dtype, ReduceOp op) {
  return is_float(dtype) && op != ReduceOp::min && op != ReduceOp::max;
}

bool is_plain_copy(const Folding& folding, std::span<const Operand> operands) {
  if (operands.size() != 1 || folding.widens || info_of(folding.dtype).kind == DtypeKind::truth)
    return false;
  const ReduceOp op = folding.reduction.op;
  if (op == ReduceOp::avg) return !folding.finish;
  if (op == ReduceOp::premul_sum) return !operands[0].raw;
  return true;
}

void fold_at(SimdLevel level, const Folding& folding, void* dst, std::span<const Operand> operands,
             std::size_t count) {
  fold_cached(kernels_at(level), folding, &dst, 1, operands, count);
}

void fold(const Folding& folding, void* dst, std::span<const Operand> operands, std::size_t count) {
  fold_cached(best_kernels(), folding, &dst, 1, operands, count);
}

void fold_to_at(SimdLevel level, const Folding& folding, std::span<void* const> destinations,
                std::span<const Operand> operands, std::size_t count, Stores stores) {
  fold_many(kernels_at(level), folding, destinations, operands, count, stores);
}

void fold_to(const Folding& folding, std::span<void* const> destinations,
             std::span<const Operand> operands, std::size_t count, Stores stores) {
  fold_many(best_kernels(), folding, destinations, operands, count, stores);
}

}  // namespace tutti::reduce
