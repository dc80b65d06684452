// reduce/elements.hpp - how each dtype gets into and out of vectors of its accumulation type.
//
// Included only by the kernels_*.cpp files, each compiled for another instruction set. Everything
// here has internal linkage, so that no copy made for AVX-512 can end up in a path for older
// processors. For the same reason nothing of the standard library is called.
//
// A vector's worth of memory is *opened* into one or more parts, each a vector of lanes of the
// accumulation type, and *closed* again. Types that are folded as they are have one part. Of narrow
// floats a 32-bit word holds two or four; each position in the word is a part, so that nothing has
// to be shuffled, and order does not matter as long as closing puts back where opening took from:
//
//   memory   | h0 h1 | h2 h3 | h4 h5 | …      part 0: h0 h2 h4 …      part 1: h1 h3 h5 …
//
// Where a fold widens, f32 is what is stored: a vector's worth of results is opened at once, from as
// many narrow elements, in their order.
//
// Every NaN that is closed becomes the canonical quiet one. Which NaN an addition of two returns
// depends on the order in which the compiler happens to put its operands; this way no bit does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "reduce/half.hpp"
#include "reduce/storage.hpp"

namespace tutti::reduce {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class T, int Bytes = kVectorBytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(Bytes)));
};
template <class T>
using Vector = typename VectorOf<T>::type;

template <class V>
TUTTI_INLINE V load(const char* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
template <class V>
TUTTI_INLINE void store(char* to, V value) {
  __builtin_memcpy(to, &value, sizeof value);
}

// Past the cache, to an address that is a multiple of the vector's size.
template <class V>
TUTTI_INLINE void stream(char* to, V value) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), lanes::as<__m512i>(value));
#elif defined(__AVX2__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), lanes::as<__m256i>(value));
#elif defined(__SSE2__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), lanes::as<__m128i>(value));
#else
  store(to, value);
#endif
}

// One lane and zeros, and back.
template <class Lane, class V>
TUTTI_INLINE V load_lane(const char* from) {
  Lane lane;
  __builtin_memcpy(&lane, from, sizeof lane);
  return lanes::as<V>(Vector<Lane>{lane});
}
template <class Lane, class V>
TUTTI_INLINE void store_lane(char* to, V value) {
  const Lane lane = lanes::as<Vector<Lane>>(value)[0];
  __builtin_memcpy(to, &lane, sizeof lane);
}

// The first `bytes` bytes only (fewer than a vector's), the rest zero. A single number of 4 or 8
// bytes, the commonest small fold, was often stored just before: the processor forwards that to a
// load of the same width, but makes a wider or masked one wait.
template <class V>
TUTTI_INLINE V load_some(const char* from, std::size_t bytes) {
  if constexpr (sizeof(V) == kVectorBytes) {
    if (bytes == 4) return load_lane<std::uint32_t, V>(from);
    if (bytes == 8) return load_lane<std::uint64_t, V>(from);
#if defined(__AVX512BW__)
    return lanes::as<V>(_mm512_maskz_loadu_epi8((1ULL << bytes) - 1, from));
#endif
  }
  V value{};
  __builtin_memcpy(&value, from, bytes);
  return value;
}
template <class V>
TUTTI_INLINE void store_some(char* to, V value, std::size_t bytes) {
  if (bytes == 4) return store_lane<std::uint32_t>(to, value);
  if (bytes == 8) return store_lane<std::uint64_t>(to, value);
#if defined(__AVX512BW__)
  _mm512_mask_storeu_epi8(to, (1ULL << bytes) - 1, lanes::as<__m512i>(value));
#else
  __builtin_memcpy(to, &value, bytes);
#endif
}

// Fewer bytes than a cache line.
TUTTI_INLINE void copy_some(char* to, const char* from, std::size_t bytes) {
#if defined(__AVX512BW__)
  store_some(to, load_some<__m512i>(from, bytes), bytes);
#else
  __builtin_memcpy(to, from, bytes);
#endif
}

template <class V>
TUTTI_INLINE V canonical(V value) {
  using Lane = std::remove_cvref_t<decltype(value[0])>;
  const V nan = V{} + static_cast<Lane>(__builtin_nan(""));
  return value == value ? value : nan;
}

// What is stored is as wide as what was loaded, but where a fold widens.
struct AsWide {
  static constexpr int kGrowth = 1;
};

template <class T>
struct Whole : AsWide {
  using Lane = T;
  using Memory = Vector<T>;
  static constexpr int kBytes = sizeof(T);
  static constexpr int kParts = 1;

  TUTTI_INLINE static Vector<T> open(Memory memory, int) { return memory; }
  TUTTI_INLINE static Memory close(const Vector<T>* parts) {
    if constexpr (std::is_floating_point_v<T>) return canonical(parts[0]);
    return parts[0];
  }
};

// Any non-zero byte is true; what is written is 0 or 1.
struct Boolean : Whole<std::uint8_t> {
  TUTTI_INLINE static Vector<Lane> open(Memory memory, int) {
    return lanes::as<Memory>(memory != 0) & 1;
  }
};

// Floats of 16 and 8 bits, folded in f32. `Format` converts between patterns in 32-bit lanes.
template <class Storage, class Format>
struct Narrow : AsWide {
  using Lane = float;
  using Memory = Vector<std::uint32_t>;
  static constexpr int kBytes = sizeof(Storage);
  static constexpr int kParts = 4 / kBytes;

  TUTTI_INLINE static Vector<float> open(Memory memory, int part) {
    const Memory bits = (memory >> (8 * kBytes * part)) & ((1U << (8 * kBytes)) - 1);
    return lanes::as<Vector<float>>(Format::widen(bits));
  }
  TUTTI_INLINE static Memory close(const Vector<float>* parts) {
    Memory memory{};
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part)
      memory |= Format::narrow(lanes::as<Memory>(canonical(parts[part]))) << (8 * kBytes * part);
    return memory;
  }
};

template <int Exp, int Man, bool Infinite>
struct Format {
  using Bits = Vector<std::uint32_t>;
  TUTTI_INLINE static Bits widen(Bits bits) {
    return lanes::widen<Exp, Man, Infinite, Vector<float>>(bits);
  }
  TUTTI_INLINE static Bits narrow(Bits bits) {
    return lanes::narrow<Exp, Man, Infinite, Vector<float>>(bits);
  }
};
// NaNs need no care here: opened ones stay NaNs, and closed ones are canonical, which rounds well.
struct FormatBf16 {
  using Bits = Vector<std::uint32_t>;
  TUTTI_INLINE static Bits widen(Bits bits) { return bits << 16; }
  TUTTI_INLINE static Bits narrow(Bits bits) {
    return (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  }
};

// A bf16 is the upper half of an f32: one shift or one mask opens it.
struct Bf16 : Narrow<std::uint16_t, FormatBf16> {
  TUTTI_INLINE static Vector<float> open(Memory memory, int part) {
    return lanes::as<Vector<float>>(part == 0 ? memory << 16 : memory & 0xffff0000U);
  }
};

#if defined(__F16C__)
// The processor's own conversion gives the same bits; it wants the two halves of the memory apart.
// Masked forms and shuffles for AVX-512, because g++ 12 warns of uninitialised values inside
// others.
struct F16 : AsWide {
  using Lane = float;
#if defined(__AVX512F__)
  using Memory = __m512i;
#else
  using Memory = __m256i;
#endif
  static constexpr int kBytes = 2;
  static constexpr int kParts = 2;
  static constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT;

  TUTTI_INLINE static Vector<float> open(Memory memory, int part) {
#if defined(__AVX512F__)
    const __m256i half = part == 0 ? __builtin_shufflevector(memory, memory, 0, 1, 2, 3)
                                   : __builtin_shufflevector(memory, memory, 4, 5, 6, 7);
    return _mm512_maskz_cvtph_ps(0xffff, half);
#else
    return _mm256_cvtph_ps(part == 0 ? _mm256_castsi256_si128(memory)
                                     : _mm256_extracti128_si256(memory, 1));
#endif
  }
  TUTTI_INLINE static Memory close(const Vector<float>* parts) {
#if defined(__AVX512F__)
    const __m256i low = _mm512_maskz_cvtps_ph(0xffff, canonical(parts[0]), kNearest);
    const __m256i high = _mm512_maskz_cvtps_ph(0xffff, canonical(parts[1]), kNearest);
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
#else
    const __m128i low = _mm256_cvtps_ph(canonical(parts[0]), kNearest);
    const __m128i high = _mm256_cvtps_ph(canonical(parts[1]), kNearest);
    return _mm256_set_m128i(high, low);
#endif
  }
};
#endif

// Narrow floats whose fold is stored as it is.
template <class Storage, class Format>
struct Widened {
  using Lane = float;
  static constexpr int kBytes = sizeof(Storage);
  static constexpr int kGrowth = sizeof(float) / sizeof(Storage);
  static constexpr int kParts = 1;
  using Memory = typename VectorOf<Storage, kVectorBytes / kGrowth>::type;

  TUTTI_INLINE static Vector<float> open(Memory memory, int) {
    const auto bits = __builtin_convertvector(memory, Vector<std::uint32_t>);
    return lanes::as<Vector<float>>(Format::widen(bits));
  }
  TUTTI_INLINE static Vector<float> close(const Vector<float>* parts) {
    return canonical(parts[0]);
  }
};

#if defined(__F16C__)
// The conversion of f16 in one instruction, as above.
struct WidenedF16 : Widened<std::uint16_t, Format<5, 10, true>> {
  TUTTI_INLINE static Vector<float> open(Memory memory, int) {
#if defined(__AVX512F__)
    return _mm512_maskz_cvtph_ps(0xffff, lanes::as<__m256i>(memory));
#else
    return _mm256_cvtph_ps(lanes::as<__m128i>(memory));
#endif
  }
};
#endif

// The elements of a float type: those that need care, or get it, are named; any other narrow one is
// made from its format.
template <int Exp, int Man, bool Infinite>
struct FloatOf {
  using Storage = Natural<(1 + Exp + Man) / 8>;
  using type = Narrow<Storage, Format<Exp, Man, Infinite>>;
  using widened = Widened<Storage, Format<Exp, Man, Infinite>>;
};
template <>
struct FloatOf<8, 23, true> {
  using type = Whole<float>;
};
template <>
struct FloatOf<11, 52, true> {
  using type = Whole<double>;
};
template <>
struct FloatOf<8, 7, true> {
  using type = Bf16;
  using widened = Widened<std::uint16_t, FormatBf16>;
};
#if defined(__F16C__)
template <>
struct FloatOf<5, 10, true> {
  using type = F16;
  using widened = WidenedF16;
};
#endif

}  // namespace
}  // namespace tutti::reduce
