// cuda/kernels/elements.hpp - each dtype as it lies in memory and as the number that it is folded as.
//
// An element is *opened* from its bits into a number of the accumulation type and *closed* again;
// reduce/elements.hpp does the same with vectors. Narrow integers are opened into 32 bits and wrap when
// they are closed, which gives the same bits as wrapping at each step. NaNs close as the canonical one.
//
// kVectors is how many vectors of 16 bytes a thread folds at once: as many as leave it within 64
// registers without spilling, since more bytes in flight are what bandwidth comes from.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/kernels/machine.hpp"
#include "reduce/half.hpp"
#include "reduce/storage.hpp"
#include "tutti/dtypes.hpp"

namespace tutti::cuda::kernels {

template <class T>
struct IntegerElement {
  using Bits = reduce::Natural<sizeof(T)>;
  using Half = std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>;
  using Number = std::conditional_t<(sizeof(T) < sizeof(Half)), Half, T>;
  static constexpr int kVectors = sizeof(T) == 4 ? 4 : 2;
  TUTTI_DEVICE static Number open(Bits bits) { return static_cast<T>(bits); }
  TUTTI_DEVICE static Bits close(Number x) { return static_cast<Bits>(x); }
};

// Any byte but 0 is true.
struct TruthElement {
  using Bits = std::uint8_t;
  using Number = std::uint32_t;
  static constexpr int kVectors = 1;
  TUTTI_DEVICE static Number open(Bits bits) { return bits != 0 ? 1 : 0; }
  TUTTI_DEVICE static Bits close(Number x) { return static_cast<Bits>(x); }
};

// f32 and f64: the bits are the number.
template <class T>
struct WholeElement {
  using Bits = reduce::Natural<sizeof(T)>;
  using Number = T;
  static constexpr int kVectors = sizeof(T) == 4 ? 4 : 2;
  static constexpr Bits kNan =
      sizeof(T) == 4 ? static_cast<Bits>(0x7fc00000) : static_cast<Bits>(0x7ff8000000000000);
  TUTTI_DEVICE static Number open(Bits bits) { return reduce::lanes::as<T>(bits); }
  TUTTI_DEVICE static Bits close(Number x) { return x == x ? reduce::lanes::as<Bits>(x) : kNan; }
};

template <int Exp, int Man, bool Infinite>
struct NarrowElement {
  using Bits = reduce::Natural<(1 + Exp + Man) / 8>;
  using Number = float;
  static constexpr int kVectors = sizeof(Bits);
  static constexpr std::uint32_t kNan = 0x7fc00000;
  TUTTI_DEVICE static float open(Bits bits) { return reduce::to_f32<Exp, Man, Infinite>(bits); }
  TUTTI_DEVICE static Bits close(float x) {
    return static_cast<Bits>(
        reduce::from_f32<Exp, Man, Infinite>(x == x ? x : reduce::lanes::as<float>(kNan)));
  }
};

#if defined(__CUDA_ARCH__)
// The processor's conversions give the same bits in one instruction, and the formulas would take more
// time than the memory: f16 as it is, f8e5m2 because it is an f16 without its lower half.
TUTTI_DEVICE float widen_f16(std::uint16_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
template <>
struct NarrowElement<5, 10, true> {
  using Bits = std::uint16_t;
  using Number = float;
  static constexpr int kVectors = sizeof(Bits);
  TUTTI_DEVICE static float open(Bits bits) { return widen_f16(bits); }
  TUTTI_DEVICE static Bits close(float x) {
    Bits bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return x == x ? bits : 0x7e00;
  }
};
template <>
struct NarrowElement<5, 2, true> {
  using Bits = std::uint8_t;
  using Number = float;
  static constexpr int kVectors = sizeof(Bits);
  TUTTI_DEVICE static float open(Bits bits) {
    return widen_f16(static_cast<std::uint16_t>(bits << 8));
  }
  TUTTI_DEVICE static Bits close(float x) {
    const std::uint32_t bits = reduce::from_f32<5, 2, true>(x);
    return x == x ? static_cast<Bits>(bits) : 0x7e;
  }
};
#endif

// The element of a row of tutti/dtypes.def.
template <DtypeKind Kind, int Bytes, int Exp, int Man>
constexpr auto element_of() {
  if constexpr (Kind == DtypeKind::truth)
    return TruthElement{};
  else if constexpr (Kind == DtypeKind::integer)
    return IntegerElement<reduce::Integer<Bytes>>{};
  else if constexpr (Kind == DtypeKind::natural)
    return IntegerElement<reduce::Natural<Bytes>>{};
  else if constexpr (Bytes == sizeof(double))
    return WholeElement<double>{};
  else if constexpr (Bytes == sizeof(float))
    return WholeElement<float>{};
  else
    return NarrowElement<Exp, Man, Kind == DtypeKind::real>{};
}
template <DtypeKind Kind, int Bytes, int Exp, int Man>
using ElementOf = decltype(element_of<Kind, Bytes, Exp, Man>());

}  // namespace tutti::cuda::kernels
