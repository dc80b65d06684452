// train/make_kernels.hpp - the update's kernels for the instruction set of the including file.
//
// Internal linkage throughout, for the reason that reduce/elements.hpp gives: no copy made for
// AVX-512 may end up in a path for older processors.
//
// An array is done a vector at a time; what is less than a vector at its end is a vector filled up
// with zeros, which sees the same operations. Every NaN that is computed is written as the canonical
// one, as reduce does it, because which of two NaNs comes out of an operation is up to the compiler.
#pragma once

#include "reduce/elements.hpp"
#include "train/kernel_table.hpp"

namespace tutti::train {
namespace {

using reduce::canonical;
using reduce::kVectorBytes;
using reduce::Vector;
using reduce::lanes::as;

using Floats = Vector<float>;
using Bits = Vector<std::uint32_t>;
using Magnitudes = Vector<std::int32_t>;
constexpr std::size_t kLanes = kVectorBytes / sizeof(float);

// Half as many bytes: what a vector of floats becomes in 16 bits, or comes from as f64.
template <class T>
using HalfVector = typename reduce::VectorOf<T, kVectorBytes / 2>::type;

// How a piece of an array is read and written: a whole vector, or its first `count` elements.
struct WholeVector {
  TUTTI_INLINE Floats load(const float* from) const {
    return reduce::load<Floats>(reinterpret_cast<const char*>(from));
  }
  TUTTI_INLINE void store(float* to, Floats value) const {
    reduce::store(reinterpret_cast<char*>(to), value);
  }
  TUTTI_INLINE HalfVector<std::uint16_t> load(const std::uint16_t* from) const {
    return reduce::load<HalfVector<std::uint16_t>>(reinterpret_cast<const char*>(from));
  }
  TUTTI_INLINE void store(std::uint16_t* to, HalfVector<std::uint16_t> value) const {
    reduce::store(reinterpret_cast<char*>(to), value);
  }
};
struct Some {
  std::size_t count;

  TUTTI_INLINE Floats load(const float* from) const {
    return reduce::load_some<Floats>(reinterpret_cast<const char*>(from), count * sizeof(float));
  }
  TUTTI_INLINE void store(float* to, Floats value) const {
    reduce::store_some(reinterpret_cast<char*>(to), value, count * sizeof(float));
  }
  TUTTI_INLINE HalfVector<std::uint16_t> load(const std::uint16_t* from) const {
    const auto wide = reduce::load_some<Vector<std::uint16_t>>(reinterpret_cast<const char*>(from),
                                                               count * sizeof(std::uint16_t));
    HalfVector<std::uint16_t> half;
    __builtin_memcpy(&half, &wide, sizeof half);
    return half;
  }
  TUTTI_INLINE void store(std::uint16_t* to, HalfVector<std::uint16_t> value) const {
    Vector<std::uint16_t> wide{};
    __builtin_memcpy(&wide, &value, sizeof value);
    reduce::store_some(reinterpret_cast<char*>(to), wide, count * sizeof(std::uint16_t));
  }
};

// Calls body(first element, piece) over `count` elements.
template <class Body>
TUTTI_INLINE void in_pieces(std::size_t count, Body body) {
  std::size_t at = 0;
  for (; count - at >= kLanes; at += kLanes) body(at, WholeVector{});
  if (at < count) body(at, Some{count - at});
}

// Rounded correctly, like every IEEE square root. The masked form, because g++ 12 warns of an
// uninitialised value inside the other.
TUTTI_INLINE Floats square_root(Floats x) {
#if defined(__AVX512F__)
  return _mm512_maskz_sqrt_ps(0xffff, x);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(x);
#elif defined(__SSE2__)
  return _mm_sqrt_ps(x);
#else
  for (std::size_t i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

void adamw(const AdamWFactors& given, float* weights, const float* gradient, float* exp_avg,
           float* exp_avg_sq, std::size_t count) {
  const AdamWFactors f = given;  // a copy, which no array can alias
  in_pieces(
      count, [=](std::size_t at, auto piece) __attribute__((always_inline)) {
        const auto after = reduce::adamw_step<Floats>(
            f, piece.load(gradient + at),
            {piece.load(weights + at), piece.load(exp_avg + at), piece.load(exp_avg_sq + at)},
            [](Floats x) __attribute__((always_inline)) { return square_root(x); });
        piece.store(exp_avg + at, canonical(after.exp_avg));
        piece.store(exp_avg_sq + at, canonical(after.exp_avg_sq));
        piece.store(weights + at, canonical(after.weight));
      });
}

template <bool First>
TUTTI_INLINE void sgd_pieces(const SgdFactors& given, float* weights, const float* gradient,
                             float* momentum, std::size_t count) {
  const SgdFactors f = given;
  in_pieces(
      count, [=](std::size_t at, auto piece) __attribute__((always_inline)) {
        Floats before{};
        if constexpr (!First) before = piece.load(momentum + at);
        const auto after = reduce::sgd_step<First, Floats>(f, piece.load(gradient + at),
                                                           {piece.load(weights + at), before});
        piece.store(momentum + at, canonical(after.momentum));
        piece.store(weights + at, canonical(after.weight));
      });
}

void sgd(const SgdFactors& factors, float* weights, const float* gradient, float* momentum,
         std::size_t count) {
  if (factors.first)
    sgd_pieces<true>(factors, weights, gradient, momentum, count);
  else
    sgd_pieces<false>(factors, weights, gradient, momentum, count);
}

// By the formulas that a GPU uses as well: the same bits, those of NaNs too.
struct HalfBf16 {
  TUTTI_INLINE static Bits narrow(Bits x) { return reduce::lanes::narrow_bf16(x); }
  TUTTI_INLINE static Bits widen(Bits x) { return reduce::lanes::widen_bf16(x); }
};
struct HalfF16 {
  TUTTI_INLINE static Bits narrow(Bits x) { return reduce::lanes::narrow<5, 10, true, Floats>(x); }
  TUTTI_INLINE static Bits widen(Bits x) { return reduce::lanes::widen<5, 10, true, Floats>(x); }
};

template <class Half>
void narrow_to(const float* from, std::uint16_t* to, std::size_t count) {
  in_pieces(
      count, [=](std::size_t at, auto piece) __attribute__((always_inline)) {
        const Bits rounded = Half::narrow(as<Bits>(piece.load(from + at)));
        piece.store(to + at, __builtin_convertvector(rounded, HalfVector<std::uint16_t>));
      });
}

template <class Half>
void widen_from(const std::uint16_t* from, float* to, std::size_t count) {
  in_pieces(
      count, [=](std::size_t at, auto piece) __attribute__((always_inline)) {
        const Bits bits = __builtin_convertvector(piece.load(from + at), Bits);
        piece.store(to + at, as<Floats>(Half::widen(bits)));
      });
}

void narrow(Dtype dtype, const float* from, std::uint16_t* to, std::size_t count) {
  dtype == Dtype::f16 ? narrow_to<HalfF16>(from, to, count) : narrow_to<HalfBf16>(from, to, count);
}

void widen(Dtype dtype, const std::uint16_t* from, float* to, std::size_t count) {
  dtype == Dtype::f16 ? widen_from<HalfF16>(from, to, count)
                      : widen_from<HalfBf16>(from, to, count);
}

constexpr std::int32_t kInfinity = 0x7f800000;

TUTTI_INLINE bool any_not_finite(Magnitudes largest) {
  for (std::size_t i = 0; i < kLanes; ++i)
    if (largest[i] >= kInfinity) return true;
  return false;
}

// Magnitudes of floats compare like integers. Strips are only asked whether there is one; which it is
// is then found one by one.
std::size_t first_not_finite(const float* values, std::size_t count) {
  constexpr std::size_t kVectors = 16;
  constexpr std::size_t kStrip = kVectors * kLanes;
  std::size_t at = 0;
  for (; count - at >= kStrip; at += kStrip) {
    Magnitudes largest{};
#pragma GCC unroll 16
    for (std::size_t u = 0; u < kVectors; ++u) {
      const auto x = as<Magnitudes>(WholeVector{}.load(values + at + u * kLanes)) & 0x7fffffff;
      largest = x > largest ? x : largest;
    }
    if (any_not_finite(largest)) break;
  }
  for (; at < count; ++at)
    if ((as<std::int32_t>(values[at]) & 0x7fffffff) >= kInfinity) break;
  return at;
}

using Doubles = Vector<double>;
using DoubleBits = Vector<std::uint64_t>;
constexpr std::size_t kDoubles = kVectorBytes / sizeof(double);

// g++ 12 makes two halves of the general form's conversion for AVX-512.
TUTTI_INLINE Doubles to_doubles(HalfVector<float> x) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtps_pd(0xff, x);
#else
  return __builtin_convertvector(x, Doubles);
#endif
}

TUTTI_INLINE std::int32_t largest_magnitude(const float* values, std::size_t count) {
  Magnitudes largest{};
  in_pieces(
      count, [&](std::size_t at, auto piece) __attribute__((always_inline)) {
        const auto x = as<Magnitudes>(piece.load(values + at)) & 0x7fffffff;
        largest = x > largest ? x : largest;
      });
  std::int32_t top = 0;
  for (std::size_t i = 0; i < kLanes; ++i) top = largest[i] > top ? largest[i] : top;
  return top;
}

// One of many sums that begin at `base`, so large that what is added is rounded to a multiple of its last
// bit, always the same: then sums are exact, in any order, and what was cut off is known exactly, too.
struct GridSum {
  Doubles sum;
  // Returns what was cut off.
  TUTTI_INLINE Doubles add(Doubles x) {
    const Doubles next = sum + x;
    const Doubles rest = x - (next - sum);
    sum = next;
    return rest;
  }
};

// Squares have 48 bits. With E the exponent of the largest, the sum of 1024 is below 2^(E+11): its upper 53
// bits are a sum on the grid 2^(E−42). What that cuts off is at most 2^(E−43) each and goes to the grid
// 2^(E−85). Bits below that are those of elements that are less than 2^-19 of the largest.
//
//   E+11        E−42         E−85
//     [  53 bits  ]
//                 [  53 bits, signed  ]
constexpr int kHighBase = 10;  // a base has the exponent of its grid's last bit, and 52 more
constexpr int kLowBase = -33;
constexpr std::size_t kSums = 4;  // at once: an addition takes four cycles

TUTTI_INLINE double three_halves(std::uint64_t exponent) {  // biased
  return as<double>(exponent << 52 | std::uint64_t{1} << 51);
}

TUTTI_INLINE double add_above(const GridSum (&sums)[kSums], double base) {
  double total = 0;
  for (const GridSum& one : sums)
    for (std::size_t i = 0; i < kDoubles; ++i) total += one.sum[i] - base;
  return total;
}

bool square_sums(const float* values, std::size_t count, double* high_low) {
  high_low[0] = high_low[1] = 0;
  const std::int32_t top = largest_magnitude(values, count);
  if (top >= kInfinity) return false;
  if (top == 0) return true;
  const double largest = as<float>(top);
  const std::uint64_t exponent = as<std::uint64_t>(largest * largest) >> 52;
  const double high_base = three_halves(exponent + kHighBase);
  const double low_base = three_halves(exponent + kLowBase);
  GridSum high[kSums], low[kSums];
  for (std::size_t i = 0; i < kSums; ++i) high[i].sum = Doubles{} + high_base;
  for (std::size_t i = 0; i < kSums; ++i) low[i].sum = Doubles{} + low_base;
  DoubleBits lost{};
  const auto add_strip = [&](const float* from) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kSums; ++i) {
      const Doubles x = to_doubles(
          reduce::load<HalfVector<float>>(reinterpret_cast<const char*>(from + i * kDoubles)));
      const Doubles rest = low[i].add(high[i].add(x * x));
      lost |= as<DoubleBits>(rest) << 1;  // without the sign: there is a zero below zero
    }
  };
  constexpr std::size_t kStrip = kSums * kDoubles;
  std::size_t at = 0;
  for (; count - at >= kStrip; at += kStrip) add_strip(values + at);
  if (at < count) {
    float last[kStrip] = {};
    __builtin_memcpy(last, values + at, (count - at) * sizeof(float));
    add_strip(last);
  }
  for (std::size_t i = 0; i < kDoubles; ++i)
    if (lost[i] != 0) return false;
  high_low[0] = add_above(high, high_base);
  high_low[1] = add_above(low, low_base);
  return true;
}

constexpr UpdateKernels make_kernels() {
  return {adamw, sgd, narrow, widen, first_not_finite, square_sums};
}

}  // namespace
}  // namespace tutti::train
