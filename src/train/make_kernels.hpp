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

// Half as many bytes: what a vector of floats becomes as bf16, or comes from as f64.
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

void narrow(const float* from, std::uint16_t* to, std::size_t count) {
  in_pieces(
      count, [=](std::size_t at, auto piece) __attribute__((always_inline)) {
        const Bits rounded = reduce::lanes::narrow_bf16(as<Bits>(piece.load(from + at)));
        piece.store(to + at, __builtin_convertvector(rounded, HalfVector<std::uint16_t>));
      });
}

void widen(const std::uint16_t* from, float* to, std::size_t count) {
  in_pieces(
      count, [=](std::size_t at, auto piece) __attribute__((always_inline)) {
        const Bits bits = __builtin_convertvector(piece.load(from + at), Bits);
        piece.store(to + at, as<Floats>(reduce::lanes::widen_bf16(bits)));
      });
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

// A block is eight rows of eight; each column is a partial sum, whatever number of vectors holds the
// eight. Columns are then added j and j + 4, j and j + 2, 0 and 1.
//
//   x0  x1  x2  x3  x4  x5  x6  x7        ↓ added downwards, one row after the other
//   x8  x9  …
constexpr std::size_t kBlock = 64;
constexpr std::size_t kColumns = 8;
using Doubles = Vector<double>;
constexpr std::size_t kDoubles = kVectorBytes / sizeof(double);
constexpr std::size_t kParts = kColumns / kDoubles;

// g++ 12 makes two halves of the general form's conversion for AVX-512.
TUTTI_INLINE Doubles to_doubles(HalfVector<float> x) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtps_pd(0xff, x);
#else
  return __builtin_convertvector(x, Doubles);
#endif
}

TUTTI_INLINE double add_lanes(Doubles x) {
#if defined(__AVX512F__)
  const auto four =
      __builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7);
#else
  const auto four = x;
#endif
#if defined(__AVX2__)
  const auto two =
      __builtin_shufflevector(four, four, 0, 1) + __builtin_shufflevector(four, four, 2, 3);
#else
  const auto two = four;
#endif
  return two[0] + two[1];
}

TUTTI_INLINE double squares_of_block(const float* values) {
  Doubles columns[kParts] = {};
#pragma GCC unroll 8
  for (std::size_t row = 0; row < kBlock / kColumns; ++row)
#pragma GCC unroll 4
    for (std::size_t part = 0; part < kParts; ++part) {
      const auto* from = values + row * kColumns + part * kDoubles;
      const Doubles x =
          to_doubles(reduce::load<HalfVector<float>>(reinterpret_cast<const char*>(from)));
      columns[part] += x * x;
    }
#pragma GCC unroll 2
  for (std::size_t half = kParts / 2; half != 0; half /= 2)
#pragma GCC unroll 2
    for (std::size_t part = 0; part < half; ++part) columns[part] += columns[part + half];
  const double sum = add_lanes(columns[0]);
  return sum == sum ? sum : __builtin_nan("");
}

// Zeros that fill up the last block add nothing: all sums are ≥ 0.
void block_squares(const float* values, std::size_t count, double* sums) {
  std::size_t at = 0;
  for (; count - at >= kBlock; at += kBlock) *sums++ = squares_of_block(values + at);
  if (at == count) return;
  float last[kBlock] = {};
  __builtin_memcpy(last, values + at, (count - at) * sizeof(float));
  *sums = squares_of_block(last);
}

constexpr UpdateKernels make_kernels() {
  return {adamw, sgd, narrow, widen, first_not_finite, block_squares};
}

}  // namespace
}  // namespace tutti::train
