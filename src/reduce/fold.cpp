#include "reduce/fold.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "reduce/kernels.hpp"

namespace tutti::reduce {
namespace {

// avg divides at the end only, premul_sum multiplies what is raw only; in between both are sums.
ReduceOp kernel_op(const Folding& folding, std::span<const Operand> operands) {
  const ReduceOp op = folding.reduction.op;
  if (op == ReduceOp::avg && !folding.finish) return ReduceOp::sum;
  if (op == ReduceOp::premul_sum &&
      std::none_of(operands.begin(), operands.end(), [](const Operand& x) { return x.raw; }))
    return ReduceOp::sum;
  return op;
}

bool is_operand(const void* place, std::span<const Operand> operands) {
  return std::any_of(operands.begin(), operands.end(),
                     [&](const Operand& x) { return x.data == place; });
}

// Which places get non-temporal stores, and how many bytes come before the first whole line there.
// Lines that a fold reads are in the cache when it writes them. Of the other places, those stream
// that begin at the same byte of a line as the first of them: the strips of a fold are cut alike
// for all.
struct Streams {
  std::uint64_t places = 0;
  std::size_t head = 0;
};
Streams streams_of(std::span<void* const> destinations, std::span<const Operand> operands,
                   std::size_t element) {
  Streams streams;
  for (std::size_t d = 0; d < destinations.size(); ++d) {
    const auto address = reinterpret_cast<std::uintptr_t>(destinations[d]);
    const std::size_t head = -address % kLineBytes;
    if (address % element != 0 || is_operand(destinations[d], operands)) continue;
    if (streams.places == 0) streams.head = head;
    if (streams.head == head) streams.places |= std::uint64_t{1} << d;
  }
  return streams;
}

void fold_places(const Kernels& kernels, const Folding& folding, const Places& places,
                 std::size_t head, std::span<const Operand> operands, std::size_t count) {
  const std::size_t bytes = count * size_of(folding.dtype);
  if (folding.reduction.op == ReduceOp::user)
    return fold_by_user(kernels, folding, places, operands, count);
  if (is_plain_copy(folding, operands))
    return copy_to_places(kernels, places, operands[0].data, 0, bytes);
  const auto op = static_cast<std::size_t>(kernel_op(folding, operands));
  const Kernel kernel = kernels.folds[static_cast<std::size_t>(folding.dtype)][op];
  TUTTI_CHECK(kernel != nullptr);  // is_sensible(op, dtype) was the caller's to ask
  const auto part = [&](std::uint64_t streaming, std::size_t begin, std::size_t end) {
    kernel({{places.data, places.count, streaming},
            operands.data(),
            operands.size(),
            begin,
            end,
            folding.reduction.scalar,
            folding.ranks});
  };
  if (head > 0) part(0, 0, std::min(head, bytes));
  if (head < bytes) part(places.streaming, head, bytes);
}

void fold_one(const Kernels& kernels, const Folding& folding, void* dst,
              std::span<const Operand> operands, std::size_t count) {
  TUTTI_CHECK(!operands.empty());
  fold_places(kernels, folding, {&dst, 1, 0}, 0, operands, count);
}

void fold_many(const Kernels& kernels, const Folding& folding, std::span<void* const> destinations,
               std::span<const Operand> operands, std::size_t count, Stores stores) {
  TUTTI_CHECK(!operands.empty());
  TUTTI_CHECK(!destinations.empty() && destinations.size() <= kMaxDestinations);
  Streams streams;
  if (stores == Stores::streaming)
    streams = streams_of(destinations, operands, size_of(folding.dtype));
  fold_places(kernels, folding, {destinations.data(), destinations.size(), streams.places},
              streams.head, operands, count);
  if (streams.places != 0) fence_streams();
}

}  // namespace

bool is_plain_copy(const Folding& folding, std::span<const Operand> operands) {
  if (operands.size() != 1 || folding.dtype == Dtype::boolean) return false;
  const ReduceOp op = folding.reduction.op;
  if (op == ReduceOp::avg) return !folding.finish;
  if (op == ReduceOp::premul_sum) return !operands[0].raw;
  return true;
}

void fold_at(Level level, const Folding& folding, void* dst, std::span<const Operand> operands,
             std::size_t count) {
  fold_one(kernels_at(level), folding, dst, operands, count);
}

void fold(const Folding& folding, void* dst, std::span<const Operand> operands, std::size_t count) {
  fold_one(best_kernels(), folding, dst, operands, count);
}

void fold_to_at(Level level, const Folding& folding, std::span<void* const> destinations,
                std::span<const Operand> operands, std::size_t count, Stores stores) {
  fold_many(kernels_at(level), folding, destinations, operands, count, stores);
}

void fold_to(const Folding& folding, std::span<void* const> destinations,
             std::span<const Operand> operands, std::size_t count, Stores stores) {
  fold_many(best_kernels(), folding, destinations, operands, count, stores);
}

}  // namespace tutti::reduce
