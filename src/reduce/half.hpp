// reduce/half.hpp - the 16- and 8-bit floats as bit patterns, to and from f32.
//
//            sign exp man   bias   beyond the largest finite value
//   f16        1   5  10     15    infinity
//   bf16       1   8   7    127    infinity
//   f8e4m3     1   4   3      7    saturates at ±448; there is no infinity, NaN is 0x7f or 0xff
//   f8e5m2     1   5   2     15    infinity
//
// To f32 is exact. From f32 rounds to nearest, ties to even, subnormals included. A NaN stays a NaN
// of the same sign, quiet, with as much of its payload as fits (e4m3: none): what the F16C
// instructions do.
//
// Each formula is written once, without branches, over a lane type: a number, or a vector of them
// (GCC vector extension), so that scalar and vector code cannot differ. Everything is forced
// inline: these functions are compiled for several instruction sets, and the linker must never pick
// one copy. GPU kernels (src/cuda) use the numbers' formulas, for both sides.
#pragma once

#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#define TUTTI_INLINE __host__ __device__ __forceinline__
#else
#define TUTTI_INLINE [[gnu::always_inline]] inline
#endif

namespace tutti::reduce {
namespace lanes {

// The same bits, read as another type.
template <class To, class From>
TUTTI_INLINE To as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

// a > limit for patterns without their sign bit. Compared as signed numbers: that is one
// instruction on every x86, unsigned is not.
template <class U>
TUTTI_INLINE auto above(U a, std::uint32_t limit) {
  if constexpr (std::is_integral_v<U>) {
    return a > limit;
  } else {
    using Signed = decltype(a > a);
    return as<Signed>(a) > static_cast<std::int32_t>(limit);
  }
}

// Widens a float with `Exp` exponent and `Man` mantissa bits, given as an integer, to f32's
// pattern. A subnormal is put below a normal number's leading one, which is then subtracted: exact,
// and it needs no subnormal operand (some processes flush those to zero).
template <int Exp, int Man, bool Infinite, class F, class U>
TUTTI_INLINE U widen(U x) {
  constexpr int kBias = (1 << (Exp - 1)) - 1;
  constexpr std::uint32_t kShift = 23 - Man;
  constexpr std::uint32_t kMagnitude = (1U << (Exp + Man)) - 1;
  constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
  constexpr std::uint32_t kSubnormalBase = static_cast<std::uint32_t>(128 - kBias) << 23;
  constexpr std::uint32_t kInfinity = ((1U << Exp) - 1) << Man;  // where there is one

  const U magnitude = x & kMagnitude;
  const U sign = (x & (kMagnitude + 1)) << (31 - Exp - Man);
  const U wide = magnitude << kShift;
  const U normal = wide + kRebias;
  const U subnormal = as<U>(as<F>(U(wide + kSubnormalBase)) - as<F>(U(U{} + kSubnormalBase)));
  U result = above(magnitude, (1U << Man) - 1) ? normal : subnormal;
  if constexpr (Infinite) {
    result = above(magnitude, kInfinity - 1) ? U(wide | 0x7f800000U) : result;
    result = above(magnitude, kInfinity) ? U(result | 0x00400000U) : result;
  } else {
    result = above(magnitude, kMagnitude - 1) ? U(U{} + 0x7fc00000U) : result;
  }
  return result | sign;
}

// Narrows f32's pattern, rounding to nearest even. Results below the smallest normal number are
// rounded by an addition that leaves exactly their bits at the end of the mantissa.
template <int Exp, int Man, bool Infinite, class F, class U>
TUTTI_INLINE U narrow(U x) {
  constexpr int kBias = (1 << (Exp - 1)) - 1;
  constexpr std::uint32_t kShift = 23 - Man;
  constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
  constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(128 - kBias) << 23;
  constexpr std::uint32_t kRounder = static_cast<std::uint32_t>(128 - kBias + 23 - Man) << 23;
  constexpr std::uint32_t kInfinity = ((1U << Exp) - 1) << Man;
  // The first f32 that cannot be finite here; everything below rounds correctly by itself.
  constexpr std::uint32_t kTooLarge = static_cast<std::uint32_t>(127 + kBias + 1) << 23;

  const U exact = x & 0x7fffffffU;
  const U sign = (x & 0x80000000U) >> (31 - Exp - Man);
  U magnitude = exact;
  if constexpr (!Infinite) {
    // All-ones is NaN, so the largest number ends in 110.
    constexpr std::uint32_t kLargest = ((kInfinity | ((1U << Man) - 2)) << kShift) + kRebias;
    magnitude = above(magnitude, kLargest) ? U(U{} + kLargest) : magnitude;
  }
  const U odd = (magnitude >> kShift) & 1U;
  const U normal = (magnitude - kRebias + ((1U << (kShift - 1)) - 1) + odd) >> kShift;
  const U subnormal = as<U>(as<F>(magnitude) + as<F>(U(U{} + kRounder))) - kRounder;
  U result = above(magnitude, kSmallestNormal - 1) ? normal : subnormal;
  if constexpr (Infinite) {
    result = above(exact, kTooLarge - 1) ? U(U{} + kInfinity) : result;
    const U payload = (exact >> kShift) & ((1U << Man) - 1);
    result = above(exact, 0x7f800000U) ? U(payload | kInfinity | (1U << (Man - 1))) : result;
  } else {
    result = above(exact, 0x7f800000U) ? U(U{} + ((1U << (Exp + Man)) - 1)) : result;
  }
  return result | sign;
}

template <class U>
TUTTI_INLINE U widen_bf16(U x) {
  const U wide = x << 16;
  return above(U(wide & 0x7fffffffU), 0x7f800000U) ? U(wide | 0x00400000U) : wide;
}

template <class U>
TUTTI_INLINE U narrow_bf16(U x) {
  const U rounded = (x + 0x7fffU + ((x >> 16) & 1U)) >> 16;
  return above(U(x & 0x7fffffffU), 0x7f800000U) ? U((x >> 16) | 0x40U) : rounded;
}

}  // namespace lanes

// One number of a narrow format, as the low bits of an integer.
template <int Exp, int Man, bool Infinite>
TUTTI_INLINE float to_f32(std::uint32_t x) {
  return lanes::as<float>(lanes::widen<Exp, Man, Infinite, float, std::uint32_t>(x));
}
template <>
TUTTI_INLINE float to_f32<8, 7, true>(std::uint32_t x) {
  return lanes::as<float>(lanes::widen_bf16<std::uint32_t>(x));
}
template <int Exp, int Man, bool Infinite>
TUTTI_INLINE std::uint32_t from_f32(float x) {
  return lanes::narrow<Exp, Man, Infinite, float>(lanes::as<std::uint32_t>(x));
}
template <>
TUTTI_INLINE std::uint32_t from_f32<8, 7, true>(float x) {
  return lanes::narrow_bf16(lanes::as<std::uint32_t>(x));
}

TUTTI_INLINE float f16_to_f32(std::uint16_t x) { return to_f32<5, 10, true>(x); }
TUTTI_INLINE std::uint16_t f32_to_f16(float x) {
  return static_cast<std::uint16_t>(from_f32<5, 10, true>(x));
}
TUTTI_INLINE float bf16_to_f32(std::uint16_t x) { return to_f32<8, 7, true>(x); }
TUTTI_INLINE std::uint16_t f32_to_bf16(float x) {
  return static_cast<std::uint16_t>(from_f32<8, 7, true>(x));
}
TUTTI_INLINE float f8e4m3_to_f32(std::uint8_t x) { return to_f32<4, 3, false>(x); }
TUTTI_INLINE std::uint8_t f32_to_f8e4m3(float x) {
  return static_cast<std::uint8_t>(from_f32<4, 3, false>(x));
}
TUTTI_INLINE float f8e5m2_to_f32(std::uint8_t x) { return to_f32<5, 2, true>(x); }
TUTTI_INLINE std::uint8_t f32_to_f8e5m2(float x) {
  return static_cast<std::uint8_t>(from_f32<5, 2, true>(x));
}

}  // namespace tutti::reduce
