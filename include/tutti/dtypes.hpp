// tutti/dtypes.hpp - what there is to know of each element type, from one list (tutti/dtypes.def).
//
//   info_of(Dtype::bf16).mantissa_bits;   // 7
//   dtype_of<float>();                    // Dtype::f32
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>

#include "tutti/types.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

// integer is signed, natural unsigned, truth 0 or 1, real a float with infinities, finite one without.
enum class DtypeKind : std::uint8_t { integer, natural, truth, real, finite };

struct DtypeInfo {
  std::string_view word;  // as it is printed
  DtypeKind kind = DtypeKind::natural;
  std::uint8_t bytes = 0;
  std::uint8_t exponent_bits = 0;  // of floats, like the next
  std::uint8_t mantissa_bits = 0;
  std::string_view safetensors;  // the word in checkpoint files
  std::string_view numpy;        // the name of numpy's type, or of ml_dtypes'
  std::uint8_t dlpack = 0;       // DLDataTypeCode

  constexpr bool is_float() const noexcept {
    return kind == DtypeKind::real || kind == DtypeKind::finite;
  }
};

inline constexpr std::array<DtypeInfo, kDtypes> kDtypeInfos = {{
#define TUTTI_DTYPE(name, NAME, word, kind, bytes, exponent, mantissa, safetensors, numpy, dlpack) \
  {word, DtypeKind::kind, bytes, exponent, mantissa, safetensors, numpy, dlpack},
#include "tutti/dtypes.def"
#undef TUTTI_DTYPE
}};

constexpr const DtypeInfo& info_of(Dtype dtype) noexcept {
  return kDtypeInfos[static_cast<std::size_t>(dtype)];
}

// The first type whose row `fits`.
template <class Fits>
constexpr std::optional<Dtype> find_dtype(Fits fits) noexcept {
  for (std::size_t i = 0; i < kDtypeInfos.size(); ++i)
    if (fits(kDtypeInfos[i])) return static_cast<Dtype>(i);
  return std::nullopt;
}

// What its elements are folded in: f32 for 16- and 8-bit floats, else the type itself.
constexpr Dtype accumulation_of(Dtype dtype) noexcept {
  const DtypeInfo& info = info_of(dtype);
  return info.is_float() && info.bytes < info_of(Dtype::f32).bytes ? Dtype::f32 : dtype;
}

// The element type that a C++ type stands for.
template <class T>
constexpr Dtype dtype_of() {
  using U = std::remove_cv_t<T>;
  constexpr auto found = find_dtype([](const DtypeInfo& info) {
    const bool is_number = std::is_integral_v<U> && !std::is_same_v<U, bool>;
    if (info.bytes != sizeof(U)) return false;
    switch (info.kind) {
      case DtypeKind::integer: return is_number && std::is_signed_v<U>;
      case DtypeKind::natural: return is_number && std::is_unsigned_v<U>;
      case DtypeKind::truth: return std::is_same_v<U, bool>;
      case DtypeKind::real:
        return std::is_floating_point_v<U> &&
               std::numeric_limits<U>::digits == info.mantissa_bits + 1;
      case DtypeKind::finite: break;
    }
    return false;
  });
  static_assert(found.has_value(), "no Dtype stands for this C++ type");
  return *found;
}

}  // namespace v1
}  // namespace tutti
