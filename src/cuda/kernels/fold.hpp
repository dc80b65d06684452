// cuda/kernels/fold.hpp - the k-way fold of a launch, for one element type and one operation.
//
//   operands  ──┊■■■■■■■■┊■■■■■■■■┊──  ┊ tile: each thread folds `kUnroll` vectors that are a block's
//             ──┊■■■■■■■■┊■■■■■■■■┊──  width apart, so that a warp's loads lie side by side;
//   targets   ──┊■■■■■■■■┊■■■■■■■■┊──  then single vectors, then the elements at both ends
//
// Two operands are in flight at once, whatever their number. Bandwidth is the limit, and this reaches
// 95 % of a plain copy's (H200, 132 to 528 blocks).
//
// Vectors are used where all places lie alike within 16 bytes, as chunks of aligned buffers do; else
// everything is done element by element. No alignment is assumed, not even an element's own.
#pragma once

#include <type_traits>

#include "cuda/kernels/meeting.hpp"
#include "cuda/kernels/operations.hpp"

namespace tutti::cuda::kernels {

// How `bytes` from an address on are cut: up to the first multiple of 16, whole vectors, the rest.
struct Cut {
  std::uint64_t head;  // bytes
  std::uint64_t vectors;
};
TUTTI_DEVICE Cut cut_of(std::uint64_t address, std::uint64_t bytes, bool vectors) {
  if (!vectors) return {bytes, 0};
  const std::uint64_t up = -address % sizeof(Quad);
  const std::uint64_t head = up < bytes ? up : bytes;
  return {head, (bytes - head) / sizeof(Quad)};
}

// ---- bits in vectors and in memory

template <class Bits, class Vector>
TUTTI_DEVICE Bits pick(const Vector& vector, int i) {
  if constexpr (sizeof(Bits) == 8) {
    return static_cast<Bits>(vector.words[2 * i + 1]) << 32 | vector.words[2 * i];
  } else {
    constexpr int kPerWord = 4 / sizeof(Bits);
    return static_cast<Bits>(vector.words[i / kPerWord] >> (8 * sizeof(Bits) * (i % kPerWord)));
  }
}
// Into a vector that was zero there.
template <class Bits, class Vector>
TUTTI_DEVICE void place(Vector& vector, int i, Bits bits) {
  if constexpr (sizeof(Bits) == 8) {
    vector.words[2 * i] = static_cast<std::uint32_t>(bits);
    vector.words[2 * i + 1] = static_cast<std::uint32_t>(bits >> 32);
  } else {
    constexpr int kPerWord = 4 / sizeof(Bits);
    vector.words[i / kPerWord] |= std::uint32_t{bits} << (8 * sizeof(Bits) * (i % kPerWord));
  }
}
template <class Bits>
TUTTI_DEVICE Bits load_bits(std::uint64_t address) {
  if (address % sizeof(Bits) == 0) return load<Bits>(address);
  Bits bits = 0;
  for (unsigned i = 0; i < sizeof(Bits); ++i)
    bits = static_cast<Bits>(bits | static_cast<Bits>(load<std::uint8_t>(address + i)) << 8 * i);
  return bits;
}
template <class Bits>
TUTTI_DEVICE void store_bits(std::uint64_t address, Bits bits) {
  if (address % sizeof(Bits) == 0) return store(address, bits);
  for (unsigned i = 0; i < sizeof(Bits); ++i)
    store(address + i, static_cast<std::uint8_t>(bits >> 8 * i));
}

// ---- the fold

template <class E, class Op>
struct FoldLoop {
  using Bits = typename E::Bits;
  using Number = typename E::Number;
  static constexpr int kPerVector = sizeof(Quad) / sizeof(Bits);
  static constexpr int kUnroll = Op::kLong && E::kVectors > 1 ? E::kVectors / 2 : E::kVectors;

  const Fold& fold;
  const Shared& shared;
  Op op;

  template <int U>
  TUTTI_DEVICE void fetch(Quad (&quads)[U], int operand, std::uint64_t at,
                          std::uint64_t apart) const {
    const std::uint64_t from = shared.operands[operand] + at;
    TUTTI_UNROLL
    for (int u = 0; u < U; ++u) quads[u] = load<Quad>(from + u * apart);
  }
  template <bool First, int U>
  TUTTI_DEVICE void take(Number (&sums)[U][kPerVector], const Quad (&quads)[U], int operand) const {
    const bool raw = fold.operands[operand].raw != 0;
    TUTTI_UNROLL
    for (int u = 0; u < U; ++u) {
      TUTTI_UNROLL
      for (int i = 0; i < kPerVector; ++i) {
        const Number x = op.enter(E::open(pick<Bits>(quads[u], i)), raw);
        sums[u][i] = First ? x : op.combine(sums[u][i], x);
      }
    }
  }
  template <int U>
  TUTTI_DEVICE void put(const Number (&sums)[U][kPerVector], std::uint64_t at,
                        std::uint64_t apart) const {
    Quad quads[U];
    TUTTI_UNROLL
    for (int u = 0; u < U; ++u) {
      quads[u] = {};
      TUTTI_UNROLL
      for (int i = 0; i < kPerVector; ++i) place(quads[u], i, E::close(op.leave(sums[u][i])));
    }
    TUTTI_ROLLED
    for (int t = 0; t < fold.target_count; ++t) {
      const std::uint64_t to = shared.targets[t] + at;
      TUTTI_UNROLL
      for (int u = 0; u < U; ++u) store(to + u * apart, quads[u]);
    }
  }

  // U vectors, at so many bytes and then so far apart. Targets may be operands: all are read first.
  template <int U>
  TUTTI_DEVICE void vectors(std::uint64_t at, std::uint64_t apart) const {
    Number sums[U][kPerVector];
    Quad one[U], other[U];
    const int count = fold.operand_count;
    fetch(one, 0, at, apart);
    if (count > 1) fetch(other, 1, at, apart);
    take<true>(sums, one, 0);
    if (count > 1) take<false>(sums, other, 1);
    TUTTI_ROLLED
    for (int k = 2; k < count; k += 2) {
      fetch(one, k, at, apart);
      if (k + 1 < count) fetch(other, k + 1, at, apart);
      take<false>(sums, one, k);
      if (k + 1 < count) take<false>(sums, other, k + 1);
    }
    put(sums, at, apart);
  }

  TUTTI_DEVICE void element(std::uint64_t at) const {
    Number sum{};
    TUTTI_ROLLED
    for (int k = 0; k < fold.operand_count; ++k) {
      const Number x =
          op.enter(E::open(load_bits<Bits>(shared.operands[k] + at)), fold.operands[k].raw != 0);
      sum = k == 0 ? x : op.combine(sum, x);
    }
    const Bits bits = E::close(op.leave(sum));
    TUTTI_ROLLED
    for (int t = 0; t < fold.target_count; ++t) store_bits(shared.targets[t] + at, bits);
  }

  TUTTI_DEVICE void run(const Cut& cut, const Worker& worker) const {
    const auto width = static_cast<std::uint64_t>(worker.count);
    const auto block = static_cast<std::uint64_t>(worker.block);
    const auto blocks = static_cast<std::uint64_t>(worker.blocks);
    const std::uint64_t mine = cut.head + worker.index * sizeof(Quad);
    const std::uint64_t tile = width * kUnroll;
    const std::uint64_t tiles = cut.vectors / tile;
    TUTTI_ROLLED
    for (std::uint64_t t = block; t < tiles; t += blocks)
      vectors<kUnroll>(mine + t * tile * sizeof(Quad), width * sizeof(Quad));
    const std::uint64_t first = block * width + worker.index;
    TUTTI_ROLLED
    for (std::uint64_t v = tiles * tile + first; v < cut.vectors; v += blocks * width)
      vectors<1>(cut.head + v * sizeof(Quad), 0);
    const std::uint64_t body = cut.vectors * sizeof(Quad);
    TUTTI_ROLLED
    for (std::uint64_t at = first * sizeof(Bits); at + body < fold.bytes;
         at += blocks * width * sizeof(Bits))
      element(at < cut.head ? at : at + body);
  }
};

template <template <class> class Op, class E>
TUTTI_DEVICE void fold_by(const Fold& fold, const Shared& shared, const Cut& cut,
                          const Worker& worker) {
  FoldLoop<E, Op<E>>{fold, shared, Op<E>(fold)}.run(cut, worker);
}

// Booleans know three operations only: sum and max are or, prod and min are and.
TUTTI_DEVICE void fold_truths(const Fold& fold, const Shared& shared, const Cut& cut,
                              const Worker& worker) {
  using E = TruthElement;
  switch (static_cast<ReduceOp>(fold.op)) {
    case ReduceOp::sum:
    case ReduceOp::max:
    case ReduceOp::bor: return fold_by<OrOp, E>(fold, shared, cut, worker);
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::band: return fold_by<AndOp, E>(fold, shared, cut, worker);
    case ReduceOp::bxor: return fold_by<XorOp, E>(fold, shared, cut, worker);
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
    case ReduceOp::user: break;
  }
}

// Signed integers come here only where the sign matters; else the kernel of the unsigned ones folds
// them (kernel_dtype in cuda/reduction.hpp).
template <class E>
TUTTI_DEVICE void fold_numbers(const Fold& fold, const Shared& shared, const Cut& cut,
                               const Worker& worker) {
  using Number = typename E::Number;
  constexpr bool kNatural = std::is_unsigned_v<Number>;
  constexpr bool kFloat = !std::is_integral_v<Number>;
  switch (static_cast<ReduceOp>(fold.op)) {
    case ReduceOp::sum:
      if constexpr (kNatural || kFloat) fold_by<SumOp, E>(fold, shared, cut, worker);
      break;
    case ReduceOp::prod:
      if constexpr (kNatural || kFloat) fold_by<ProdOp, E>(fold, shared, cut, worker);
      break;
    case ReduceOp::min: return fold_by<MinOp, E>(fold, shared, cut, worker);
    case ReduceOp::max: return fold_by<MaxOp, E>(fold, shared, cut, worker);
    case ReduceOp::avg: return fold_by<AvgOp, E>(fold, shared, cut, worker);
    case ReduceOp::band:
      if constexpr (kNatural) fold_by<AndOp, E>(fold, shared, cut, worker);
      break;
    case ReduceOp::bor:
      if constexpr (kNatural) fold_by<OrOp, E>(fold, shared, cut, worker);
      break;
    case ReduceOp::bxor:
      if constexpr (kNatural) fold_by<XorOp, E>(fold, shared, cut, worker);
      break;
    case ReduceOp::premul_sum:
      if constexpr (kFloat) fold_by<PremulSumOp, E>(fold, shared, cut, worker);
      break;
    case ReduceOp::user: break;
  }
}

}  // namespace tutti::cuda::kernels
