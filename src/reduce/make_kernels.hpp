// reduce/make_kernels.hpp - the k-way fold over every dtype and op, for the instruction set of the
// including file. Internal linkage throughout, for the reason that elements.hpp gives.
//
//   operands   x0 ────────■■■■──────      one strip (four vectors of lanes) of every operand is
//              x1 ────────■■■■──────      folded in registers, left to right, and stored from
//              x2 ────────■■■■──────      there to every place; then single vectors, then one
//   places     y0 ────────■■■■──────      filled up with zeros: always the same operations, so a
//              y1 ────────■■■■──────      tail is like the body
//
// A balanced fold of a strip keeps partial ones that wait for others as large, at most one of each size:
//
//   x0 x1 x2 x3 x4 x5 x6      [x0…x3] [x4 x5] [x6]      then from the right: [x0…x3] [[x4 x5] x6]
#pragma once

#include "reduce/elements.hpp"
#include "reduce/kernels.hpp"
#include "tutti/dtypes.hpp"

namespace tutti::reduce {
namespace {

struct Combine {
  // What is done to an operand before the fold and to the result after it: nothing.
  template <class V>
  TUTTI_INLINE static V enter(V x, bool, const FoldJob&) {
    return x;
  }
  template <class V>
  TUTTI_INLINE static V leave(V acc, const FoldJob&) {
    return acc;
  }
};

struct Sum : Combine {
  template <class V>
  TUTTI_INLINE static V combine(V a, V b) {
    return a + b;
  }
};
struct Prod : Combine {
  template <class V>
  TUTTI_INLINE static V combine(V a, V b) {
    return a * b;
  }
};
struct And : Combine {
  template <class V>
  TUTTI_INLINE static V combine(V a, V b) {
    return a & b;
  }
};
struct Or : Combine {
  template <class V>
  TUTTI_INLINE static V combine(V a, V b) {
    return a | b;
  }
};
struct Xor : Combine {
  template <class V>
  TUTTI_INLINE static V combine(V a, V b) {
    return a ^ b;
  }
};

// Equal floats differ at most in the sign of zero, and there the union of the bits is the smaller,
// their intersection the larger. A NaN on the right fails both comparisons and is taken; one on the
// left is asked for.
template <bool Smaller>
struct Extreme : Combine {
  template <class V>
  TUTTI_INLINE static V combine(V a, V b) {
    const auto left = Smaller ? a < b : a > b;
    V result = left ? a : b;
    if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(a[0])>>) {
      using Bits = decltype(a < b);
      const Bits x = lanes::as<Bits>(a);
      const Bits y = lanes::as<Bits>(b);
      result = a == b ? lanes::as<V>(Smaller ? x | y : x & y) : result;
      result = a == a ? result : a;
    }
    return result;
  }
};
using Min = Extreme<true>;
using Max = Extreme<false>;

struct Avg : Sum {
  template <class V>
  TUTTI_INLINE static V leave(V acc, const FoldJob& job) {
    using Lane = std::remove_cvref_t<decltype(acc[0])>;
    if constexpr (std::is_floating_point_v<Lane>) {
      return acc / static_cast<Lane>(job.ranks);
    } else {
      // `ranks` need not fit the lane's type, so the division is done in a wider one.
      using Half = std::conditional_t<std::is_signed_v<Lane>, std::int32_t, std::uint32_t>;
      using Wide = std::conditional_t<(sizeof(Lane) > sizeof(Half)), Lane, Half>;
      for (int i = 0; i < static_cast<int>(sizeof(V) / sizeof(Lane)); ++i)
        acc[i] = static_cast<Lane>(static_cast<Wide>(acc[i]) / static_cast<Wide>(job.ranks));
      return acc;
    }
  }
};

// Integers wrap, which signed lanes may not do.
struct SignedAvg : Avg {
  template <class V>
  TUTTI_INLINE static V combine(V a, V b) {
    using Lane = std::make_unsigned_t<std::remove_cvref_t<decltype(a[0])>>;
    using U = Vector<Lane>;
    return lanes::as<V>(U(lanes::as<U>(a) + lanes::as<U>(b)));
  }
};

// A partial fold has its factors in it already; times one leaves it as it is.
struct PremulSum : Sum {
  template <class V>
  TUTTI_INLINE static V enter(V x, bool raw, const FoldJob& job) {
    using Lane = std::remove_cvref_t<decltype(x[0])>;
    return x * (raw ? static_cast<Lane>(job.scalar) : Lane(1));
  }
};

// Operands are asked for this far ahead when a fold is long, but never beyond its end, where another
// core may be at work on its own part. Measured in place with 2…8 operands, on 2 vCPUs of a Xeon
// with AVX-512, 2026-11-15: 2 to 15 % faster from 1 MiB on, most from 16 MiB; 512 B, 1 and 2 KiB
// ahead are alike; in the second-level cache it costs 2 to 4 %, so short folds do without.
constexpr std::size_t kAheadBytes = 1 << 10;
constexpr std::size_t kLongBytes = 256 << 10;

// What a strip of `U` vectors' worth of memory holds while it is folded.
template <class E, int U>
using Strip = Vector<typename E::Lane>[U][E::kParts];

// Folds one operand into the strip, or begins the strip with it; `some` bytes of it when Partial.
template <class E, class Op, int U, bool Partial, bool First>
TUTTI_INLINE void take(Strip<E, U>& acc, const Operand& operand, const FoldJob& job,
                       std::size_t offset, std::size_t some, std::size_t ahead) {
  using Memory = typename E::Memory;
  const char* from = static_cast<const char*>(operand.data) + offset;
  if (ahead != 0)
#pragma GCC unroll 4
    for (std::size_t line = 0; line < U * sizeof(Memory); line += kLineBytes)
      __builtin_prefetch(from + ahead + line);
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) {
    const char* at = from + u * sizeof(Memory);
    const Memory memory = Partial ? load_some<Memory>(at, some) : load<Memory>(at);
#pragma GCC unroll 4
    for (int part = 0; part < E::kParts; ++part) {
      const auto x = Op::enter(E::open(memory, part), operand.raw, job);
      if constexpr (First)
        acc[u][part] = x;
      else
        acc[u][part] = Op::combine(acc[u][part], x);
    }
  }
}

// Stores a strip to every place. All operands of the strip have been read: places may be operands.
template <class V, int U, bool Partial>
TUTTI_INLINE void put(const V (&strip)[U], const OperandPlaces& places, std::size_t offset,
                      std::size_t some) {
  for (std::size_t d = 0; d < places.count; ++d) {
    char* to = static_cast<char*>(places.data[d]) + offset;
    if constexpr (Partial) {
      store_some(to, strip[0], some);
    } else if ((places.streaming >> d & 1) != 0) {
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) stream(to + u * kVectorBytes, strip[u]);
    } else {
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) store(to + u * kVectorBytes, strip[u]);
    }
  }
}

// Whether the bits of a fold depend on where its parentheses are.
template <class E, class Op>
constexpr bool kDependsOnShape =
    std::is_floating_point_v<typename E::Lane> &&
    !(std::is_base_of_v<Extreme<true>, Op> || std::is_base_of_v<Extreme<false>, Op>);

template <class E, class Op, int U>
TUTTI_INLINE void join(Strip<E, U>& left, const Strip<E, U>& right) {
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u)
#pragma GCC unroll 4
    for (int part = 0; part < E::kParts; ++part)
      left[u][part] = Op::combine(left[u][part], right[u][part]);
}

// Into waiting[0]. Of 2^k operands k are waiting at most, and the strip that is begun.
constexpr std::size_t kMostWaiting = 21;
template <class E, class Op, int U, bool Partial>
TUTTI_INLINE void take_balanced(Strip<E, U> (&waiting)[kMostWaiting], const FoldJob& job,
                                std::size_t offset, std::size_t some, std::size_t ahead) {
  std::size_t count = 0;
  for (std::size_t j = 0; j < job.operand_count; ++j) {
    if (j % 2 == 0) {
      take<E, Op, U, Partial, true>(waiting[count++], job.operands[j], job, offset, some, ahead);
      continue;
    }
    take<E, Op, U, Partial, false>(waiting[count - 1], job.operands[j], job, offset, some, ahead);
    for (std::size_t pairs = (j + 1) / 2; pairs % 2 == 0; pairs /= 2, --count)
      join<E, Op, U>(waiting[count - 2], waiting[count - 1]);
  }
  for (; count > 1; --count) join<E, Op, U>(waiting[count - 2], waiting[count - 1]);
}

template <class E, class Op, int U, bool Partial>
TUTTI_INLINE void take_all(Strip<E, U>& acc, const FoldJob& job, std::size_t offset,
                           std::size_t some, std::size_t ahead) {
  take<E, Op, U, Partial, true>(acc, job.operands[0], job, offset, some, ahead);
  for (std::size_t j = 1; j < job.operand_count; ++j)
    take<E, Op, U, Partial, false>(acc, job.operands[j], job, offset, some, ahead);
}

// Leaves the strip, and stores it.
template <class E, class Op, int U, bool Partial>
TUTTI_INLINE void finish_strip(Strip<E, U>& acc, const FoldJob& job, std::size_t offset,
                               std::size_t some) {
  using Result = decltype(E::close(acc[0]));
  Result closed[U];
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) {
#pragma GCC unroll 4
    for (int part = 0; part < E::kParts; ++part) acc[u][part] = Op::leave(acc[u][part], job);
    closed[u] = E::close(acc[u]);
  }
  put<Result, U, Partial>(closed, job.places, offset * E::kGrowth, some * E::kGrowth);
}

template <class E, class Op, bool Balanced, int U, bool Partial>
TUTTI_INLINE void fold_strip(const FoldJob& job, std::size_t offset, std::size_t some,
                             std::size_t ahead) {
  if constexpr (Balanced) {
    Strip<E, U> waiting[kMostWaiting];
    take_balanced<E, Op, U, Partial>(waiting, job, offset, some, ahead);
    finish_strip<E, Op, U, Partial>(waiting[0], job, offset, some);
  } else {
    Strip<E, U> acc;
    take_all<E, Op, U, Partial>(acc, job, offset, some, ahead);
    finish_strip<E, Op, U, Partial>(acc, job, offset, some);
  }
}

template <class E, class Op, bool Balanced>
void fold_shaped(const FoldJob& given) {
  const FoldJob job = given;  // a copy, which no place can alias
  constexpr int kWide = 4 / E::kParts;
  constexpr std::size_t kVector = sizeof(typename E::Memory);
  constexpr std::size_t kStrip = kWide * kVector;
  const std::size_t end = job.end * E::kBytes;
  std::size_t at = job.begin * E::kBytes;
  const std::size_t far = end - at >= kLongBytes ? end - kAheadBytes - kStrip : 0;
  for (; end - at >= kStrip; at += kStrip)
    fold_strip<E, Op, Balanced, kWide, false>(job, at, 0, at < far ? kAheadBytes : 0);
  for (; end - at >= kVector; at += kVector) fold_strip<E, Op, Balanced, 1, false>(job, at, 0, 0);
  if (at < end) fold_strip<E, Op, Balanced, 1, true>(job, at, end - at, 0);
}

// Of three operands or fewer a balanced fold is one from the left.
template <class E, class Op>
void fold_all(const FoldJob& job) {
  if constexpr (kDependsOnShape<E, Op>)
    if (job.balanced && job.operand_count > 3) return fold_shaped<E, Op, true>(job);
  fold_shaped<E, Op, false>(job);
}

// In the order of ReduceOp: sum prod min max avg band bor bxor premul_sum user.
using Row = std::array<Kernel, kReduceOps>;

template <class E>
constexpr Row float_row() {
  return {fold_all<E, Sum>, fold_all<E, Prod>, fold_all<E, Min>,
          fold_all<E, Max>, fold_all<E, Avg>,  nullptr,
          nullptr,          nullptr,           fold_all<E, PremulSum>,
          nullptr};
}

// Sign matters only where numbers are compared or divided.
template <class T>
constexpr Row integer_row() {
  using E = Whole<T>;
  using U = Whole<std::make_unsigned_t<T>>;
  using Mean = std::conditional_t<std::is_signed_v<T>, SignedAvg, Avg>;
  return {
      fold_all<U, Sum>, fold_all<U, Prod>, fold_all<E, Min>, fold_all<E, Max>, fold_all<E, Mean>,
      fold_all<U, And>, fold_all<U, Or>,   fold_all<U, Xor>, nullptr,          nullptr};
}

constexpr Row boolean_row() {
  using E = Boolean;
  return {fold_all<E, Or>,  fold_all<E, And>, fold_all<E, And>, fold_all<E, Or>, nullptr,
          fold_all<E, And>, fold_all<E, Or>,  fold_all<E, Xor>, nullptr,         nullptr};
}

template <DtypeKind Kind, int Bytes, int Exp, int Man>
constexpr Row row_of() {
  if constexpr (Kind == DtypeKind::truth)
    return boolean_row();
  else if constexpr (Kind == DtypeKind::integer)
    return integer_row<Integer<Bytes>>();
  else if constexpr (Kind == DtypeKind::natural)
    return integer_row<Natural<Bytes>>();
  else
    return float_row<typename FloatOf<Exp, Man, Kind == DtypeKind::real>::type>();
}

// Into the accumulation type; of types that are their own there is no such fold.
template <DtypeKind Kind, int Bytes, int Exp, int Man>
constexpr Row widening_row_of() {
  if constexpr ((Kind == DtypeKind::real || Kind == DtypeKind::finite) && Bytes < sizeof(float))
    return float_row<typename FloatOf<Exp, Man, Kind == DtypeKind::real>::widened>();
  else
    return {};
}

constexpr KernelTable make_folds() {
  return {
#define TUTTI_DTYPE(name, NAME, word, kind, bytes, exponent, mantissa, ...) \
  row_of<DtypeKind::kind, bytes, exponent, mantissa>(),
#include "tutti/dtypes.def"
#undef TUTTI_DTYPE
  };
}

constexpr KernelTable make_widening_folds() {
  return {
#define TUTTI_DTYPE(name, NAME, word, kind, bytes, exponent, mantissa, ...) \
  widening_row_of<DtypeKind::kind, bytes, exponent, mantissa>(),
#include "tutti/dtypes.def"
#undef TUTTI_DTYPE
  };
}

// Ordinary stores up to the first line of `dst` and for what is less than a vector at the end.
void stream_all(char* dst, const char* src, std::size_t bytes) {
  using V = Vector<std::uint64_t>;
  constexpr std::size_t kStrip = 4 * kVectorBytes;
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(dst) % kLineBytes;
  if (head >= bytes) return copy_some(dst, src, bytes);
  copy_some(dst, src, head);
  std::size_t at = head;
  for (; bytes - at >= kStrip; at += kStrip) {
    V strip[4];
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) strip[u] = load<V>(src + at + u * kVectorBytes);
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) stream(dst + at + u * kVectorBytes, strip[u]);
  }
  for (; bytes - at >= kVectorBytes; at += kVectorBytes) stream(dst + at, load<V>(src + at));
  copy_some(dst + at, src + at, bytes - at);
}

constexpr Kernels make_kernels() { return {make_folds(), make_widening_folds(), stream_all}; }

}  // namespace
}  // namespace tutti::reduce
