// cuda/kernels/shaped_fold.hpp - folds of floats that are balanced, or not rounded: the rarer ones.
//
// Apart from fold.hpp, so that what they need costs the others no register. One loop serves both shapes of
// a fold. A balanced one keeps partial folds that wait for others as large, at most one of each size; the bits
// of the number of operands so far tell which wait:
//
//   x0 x1 x2 x3 x4 x5 x6      [x0…x3] [x4 x5] [x6]      at the end from the right: [x0…x3] [[x4 x5] x6]
//
// A thread folds four elements at once, of f64 two: more would not fit into its registers. The next operand
// is on its way meanwhile.
#pragma once

#include <type_traits>

#include "cuda/kernels/fold.hpp"

namespace tutti::cuda::kernels {

// As many bytes, loaded and stored at once; 16 are a Quad.
template <int Bytes>
struct alignas(Bytes) WordsOf {
  std::uint32_t words[Bytes / 4];
};
template <int Bytes>
using Words = std::conditional_t<Bytes == sizeof(Quad), Quad, WordsOf<Bytes>>;

// A narrow float whose fold is not rounded: closed as the f32 that it was folded in.
template <class E>
struct WidenedElement : E {
  TUTTI_DEVICE static std::uint32_t close(float x) { return WholeElement<float>::close(x); }
};

template <class E, class Op>
struct ShapedFold {
  using Bits = typename E::Bits;
  using Number = typename E::Number;
  using Result = decltype(E::close(Number{}));
  static constexpr int kPerVector = sizeof(Number) == 8 ? 2 : 4;
  using Vector = Words<kPerVector * sizeof(Bits)>;
  using Target = Words<kPerVector * sizeof(Result)>;
  static constexpr int kGrowth = sizeof(Result) / sizeof(Bits);  // bytes of a target per operand's
  static constexpr int kLevels = 4;
  static_assert(kMostRanks <= 1 << kLevels);

  const Fold& fold;
  const Shared& shared;
  Op op;

  // Operand k of N elements comes onto those before it.
  template <int N>
  TUTTI_DEVICE void take(Number (&sums)[N], Number (&waiting)[kLevels][N], const Number (&x)[N],
                         int k) const {
    const bool balanced = fold.balanced != 0;
    const bool last = k == fold.operand_count - 1;
    TUTTI_UNROLL
    for (int i = 0; i < N; ++i) sums[i] = balanced || k == 0 ? x[i] : op.combine(sums[i], x[i]);
    if (!balanced) return;
    bool rises = true;
    TUTTI_UNROLL
    for (int level = 0; level < kLevels; ++level) {
      const bool waits = (k >> level & 1) != 0;
      TUTTI_UNROLL
      for (int i = 0; i < N; ++i) {
        if (waits && (rises || last)) sums[i] = op.combine(waiting[level][i], sums[i]);
        if (!waits && rises) waiting[level][i] = sums[i];
      }
      rises = rises && waits;
    }
  }

  TUTTI_DEVICE void vector(std::uint64_t at) const {
    Number sums[kPerVector];
    Number waiting[kLevels][kPerVector];
    Vector next = load<Vector>(shared.operands[0] + at);
    TUTTI_ROLLED
    for (int k = 0; k < fold.operand_count; ++k) {
      const Vector here = next;
      if (k + 1 < fold.operand_count) next = load<Vector>(shared.operands[k + 1] + at);
      Number x[kPerVector];
      TUTTI_UNROLL
      for (int i = 0; i < kPerVector; ++i)
        x[i] = op.enter(E::open(pick<Bits>(here, i)), fold.operands[k].raw != 0);
      take(sums, waiting, x, k);
    }
    put(sums, at);
  }
  TUTTI_DEVICE void put(const Number (&sums)[kPerVector], std::uint64_t at) const {
    Target closed{};
    TUTTI_UNROLL
    for (int i = 0; i < kPerVector; ++i) place(closed, i, E::close(op.leave(sums[i])));
    TUTTI_ROLLED
    for (int t = 0; t < fold.target_count; ++t) store(shared.targets[t] + at * kGrowth, closed);
  }

  TUTTI_DEVICE void element(std::uint64_t at) const {
    Number sum[1] = {};
    Number waiting[kLevels][1];
    TUTTI_ROLLED
    for (int k = 0; k < fold.operand_count; ++k) {
      const Number x[1] = {
          op.enter(E::open(load_bits<Bits>(shared.operands[k] + at)), fold.operands[k].raw != 0)};
      take(sum, waiting, x, k);
    }
    const Result bits = E::close(op.leave(sum[0]));
    TUTTI_ROLLED
    for (int t = 0; t < fold.target_count; ++t) store_bits(shared.targets[t] + at * kGrowth, bits);
  }

  TUTTI_DEVICE void run(const Cut& cut, const Worker& worker) const {
    constexpr std::uint64_t kPerQuad = sizeof(Quad) / sizeof(Vector);
    const auto width = static_cast<std::uint64_t>(worker.count);
    const std::uint64_t first = worker.block * width + worker.index;
    const std::uint64_t step = worker.blocks * width;
    TUTTI_ROLLED
    for (std::uint64_t v = first; v < cut.vectors * kPerQuad; v += step)
      vector(cut.head + v * sizeof(Vector));
    const std::uint64_t body = cut.vectors * sizeof(Quad);
    TUTTI_ROLLED
    for (std::uint64_t at = first * sizeof(Bits); at + body < fold.bytes; at += step * sizeof(Bits))
      element(at < cut.head ? at : at + body);
  }
};

template <template <class> class Op, class E>
TUTTI_DEVICE void fold_shaped_by(const Fold& fold, const Shared& shared, const Cut& cut,
                                 const Worker& worker) {
  ShapedFold<E, Op<E>>{fold, shared, Op<E>(fold)}.run(cut, worker);
}

// min and max do not depend on a fold's shape, so they come here only where it is not rounded.
template <class E, bool Widens>
TUTTI_DEVICE void fold_shaped(const Fold& fold, const Shared& shared, const Cut& cut,
                              const Worker& worker) {
  switch (static_cast<ReduceOp>(fold.op)) {
    case ReduceOp::sum: return fold_shaped_by<SumOp, E>(fold, shared, cut, worker);
    case ReduceOp::prod: return fold_shaped_by<ProdOp, E>(fold, shared, cut, worker);
    case ReduceOp::avg: return fold_shaped_by<AvgOp, E>(fold, shared, cut, worker);
    case ReduceOp::premul_sum: return fold_shaped_by<PremulSumOp, E>(fold, shared, cut, worker);
    case ReduceOp::min:
      if constexpr (Widens) fold_shaped_by<MinOp, E>(fold, shared, cut, worker);
      break;
    case ReduceOp::max:
      if constexpr (Widens) fold_shaped_by<MaxOp, E>(fold, shared, cut, worker);
      break;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::user: break;
  }
}

}  // namespace tutti::cuda::kernels
