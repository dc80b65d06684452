#include "support/reference.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <sstream>
#include <type_traits>

namespace tutti::test {
namespace {

// A binary float format of at most 16 bits.
struct Format {
  int exponent_bits;
  int fraction_bits;
  bool has_infinity;  // f8e4m3 has none: its top exponent is a number, but for the one NaN

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int top_exponent() const { return (1 << exponent_bits) - 1; }
  int sign_shift() const { return exponent_bits + fraction_bits; }
  double largest() const {
    const int exponent = (has_infinity ? top_exponent() - 1 : top_exponent()) - bias();
    const int missing = has_infinity ? 1 : 2;  // units below the next power of two
    return std::ldexp(2.0 - std::ldexp(missing, -fraction_bits), exponent);
  }
};

std::optional<Format> format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16: return Format{5, 10, true};
    case Dtype::bf16: return Format{8, 7, true};
    case Dtype::f8e4m3: return Format{4, 3, false};
    case Dtype::f8e5m2: return Format{5, 2, true};
    default: return std::nullopt;
  }
}

double decode_small(const Format& format, unsigned bits) {
  const double sign = bits >> format.sign_shift() & 1U ? -1.0 : 1.0;
  const int exponent = static_cast<int>(bits >> format.fraction_bits) & format.top_exponent();
  const unsigned fraction = bits & ((1U << format.fraction_bits) - 1U);
  const bool all_ones = fraction == (1U << format.fraction_bits) - 1U;
  if (exponent == format.top_exponent() && (format.has_infinity || all_ones)) {
    if (format.has_infinity && fraction == 0) return sign * std::numeric_limits<double>::infinity();
    return std::numeric_limits<double>::quiet_NaN();
  }
  const double unit = std::ldexp(1.0, std::max(exponent, 1) - format.bias() - format.fraction_bits);
  return sign * unit * (fraction + (exponent > 0 ? double(1U << format.fraction_bits) : 0.0));
}

unsigned encode_small(const Format& format, double value) {
  const unsigned sign = std::signbit(value) ? 1U << format.sign_shift() : 0U;
  const unsigned infinity = static_cast<unsigned>(format.top_exponent()) << format.fraction_bits;
  if (std::isnan(value)) return sign | infinity | ((1U << format.fraction_bits) - 1U);
  double magnitude = std::fabs(value);
  int exponent = 1 - format.bias();  // of the subnormals and of the smallest normals
  if (magnitude != 0 && !std::isinf(magnitude))
    exponent = std::max(exponent, std::ilogb(magnitude));
  const double unit = std::ldexp(1.0, exponent - format.fraction_bits);
  magnitude = std::nearbyint(magnitude / unit) * unit;  // ties to even is the default mode
  if (magnitude > format.largest()) {
    if (format.has_infinity) return sign | infinity;
    magnitude = format.largest();
  }
  if (magnitude == 0) return sign;
  exponent = std::max(1 - format.bias(), std::ilogb(magnitude));
  const auto units = static_cast<unsigned>(std::ldexp(magnitude, format.fraction_bits - exponent));
  const auto biased = static_cast<unsigned>(exponent + format.bias());
  const bool normal = units >> format.fraction_bits;
  return sign |
         (normal ? (biased << format.fraction_bits) + units - (1U << format.fraction_bits) : units);
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

template <class T>
T float_extreme(T a, T b, bool smaller) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) == smaller ? a : b;
  return (a < b) == smaller ? a : b;
}

template <class T>
T combine_floats(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::prod: return a * b;
    case ReduceOp::min: return float_extreme(a, b, true);
    case ReduceOp::max: return float_extreme(a, b, false);
    default: return a + b;
  }
}

// Both shapes are a left part and a right one: of a fold from the left that is the last value, of a
// balanced one all behind the largest power of two.
template <class T, class Combine>
T fold_values(std::span<const T> values, bool balanced, const Combine& combine) {
  if (values.size() == 1) return values[0];
  std::size_t left = values.size() - 1;
  if (balanced)
    for (left = 1; 2 * left < values.size();) left *= 2;
  return combine(fold_values(values.first(left), balanced, combine),
                 fold_values(values.subspan(left), balanced, combine));
}

// T: the accumulation type, float or double.
template <class T>
Bytes fold_floats(Dtype dtype, const Reduction& reduction, const std::vector<Bytes>& inputs,
                  int divisor, Dtype result_dtype, bool balanced) {
  const std::size_t width = size_of(dtype);
  const std::size_t count = inputs.front().size() / width;
  Bytes result(count * size_of(result_dtype));
  const bool premultiply = reduction.op == ReduceOp::premul_sum;
  const auto combine = [&](T a, T b) { return combine_floats(reduction.op, a, b); };
  std::vector<T> values(inputs.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      values[r] = static_cast<T>(decode(dtype, inputs[r].data() + i * width));
      if (premultiply) values[r] *= static_cast<T>(reduction.scalar);
    }
    T folded = fold_values(std::span<const T>(values), balanced, combine);
    if (reduction.op == ReduceOp::avg) folded /= static_cast<T>(divisor);
    encode(result_dtype, static_cast<double>(folded), result.data() + i * size_of(result_dtype));
  }
  return result;
}

template <class T>
T combine_integers(ReduceOp op, T a, T b) {
  const auto wide_a = static_cast<std::uint64_t>(a);
  const auto wide_b = static_cast<std::uint64_t>(b);
  switch (op) {
    case ReduceOp::prod: return static_cast<T>(wide_a * wide_b);
    case ReduceOp::min: return std::min(a, b);
    case ReduceOp::max: return std::max(a, b);
    case ReduceOp::band: return static_cast<T>(wide_a & wide_b);
    case ReduceOp::bor: return static_cast<T>(wide_a | wide_b);
    case ReduceOp::bxor: return static_cast<T>(wide_a ^ wide_b);
    default: return static_cast<T>(wide_a + wide_b);
  }
}

template <class T>
Bytes fold_integers(ReduceOp op, const std::vector<Bytes>& inputs, int divisor) {
  Bytes result = inputs.front();
  for (std::size_t at = 0; at < result.size(); at += sizeof(T)) {
    T folded = load<T>(result.data() + at);
    for (std::size_t r = 1; r < inputs.size(); ++r)
      folded = combine_integers(op, folded, load<T>(inputs[r].data() + at));
    if (op == ReduceOp::avg) {
      using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
      folded = static_cast<T>(static_cast<Wide>(folded) / static_cast<Wide>(divisor));
    }
    store(result.data() + at, folded);
  }
  return result;
}

Bytes fold_booleans(ReduceOp op, const std::vector<Bytes>& inputs) {
  const bool all = op == ReduceOp::prod || op == ReduceOp::min || op == ReduceOp::band;
  const bool parity = op == ReduceOp::bxor;
  Bytes result = inputs.front();
  for (std::size_t r = 1; r < inputs.size(); ++r)
    for (std::size_t i = 0; i < result.size(); ++i) {
      const std::byte other = inputs[r][i];
      result[i] = all ? result[i] & other : parity ? result[i] ^ other : result[i] | other;
    }
  return result;
}

Bytes fold_by_user(const UserReduction& user, Dtype dtype, const std::vector<Bytes>& inputs,
                   bool balanced) {
  return fold_values(std::span(inputs), balanced, [&](const Bytes& left, Bytes right) {
    user.function(left.data(), right.data(), right.size() / size_of(dtype), dtype, user.context);
    return right;
  });
}

void compose(const void* in, void* inout, std::size_t count, Dtype, void*) {
  const auto* outer = static_cast<const std::byte*>(in);
  auto* inner = static_cast<std::byte*>(inout);
  for (std::size_t at = 0; at < count * sizeof(std::uint64_t); at += sizeof(std::uint64_t)) {
    const auto f = load<std::array<std::uint32_t, 2>>(outer + at);
    const auto g = load<std::array<std::uint32_t, 2>>(inner + at);
    store(inner + at, std::array<std::uint32_t, 2>{f[0] * g[0], f[0] * g[1] + f[1]});
  }
}

}  // namespace

double decode(Dtype dtype, const std::byte* element) {
  if (dtype == Dtype::f64) return load<double>(element);
  if (dtype == Dtype::f32) return static_cast<double>(load<float>(element));
  const auto format = format_of(dtype);
  if (!format) return 0.0;
  const unsigned bits =
      size_of(dtype) == 1 ? load<std::uint8_t>(element) : load<std::uint16_t>(element);
  return decode_small(*format, bits);
}

void encode(Dtype dtype, double value, std::byte* element) {
  if (dtype == Dtype::f64) return store(element, value);
  if (dtype == Dtype::f32) return store(element, static_cast<float>(value));
  const auto format = format_of(dtype);
  if (!format) return;
  const unsigned bits = encode_small(*format, value);
  if (size_of(dtype) == 1) return store(element, static_cast<std::uint8_t>(bits));
  store(element, static_cast<std::uint16_t>(bits));
}

Bytes fold_in_order(Dtype dtype, const Reduction& reduction, const std::vector<Bytes>& inputs,
                    int divisor, Dtype result, bool balanced) {
  if (reduction.op == ReduceOp::user) return fold_by_user(*reduction.user, dtype, inputs, balanced);
  switch (dtype) {
    case Dtype::i8: return fold_integers<std::int8_t>(reduction.op, inputs, divisor);
    case Dtype::u8: return fold_integers<std::uint8_t>(reduction.op, inputs, divisor);
    case Dtype::i16: return fold_integers<std::int16_t>(reduction.op, inputs, divisor);
    case Dtype::u16: return fold_integers<std::uint16_t>(reduction.op, inputs, divisor);
    case Dtype::i32: return fold_integers<std::int32_t>(reduction.op, inputs, divisor);
    case Dtype::u32: return fold_integers<std::uint32_t>(reduction.op, inputs, divisor);
    case Dtype::i64: return fold_integers<std::int64_t>(reduction.op, inputs, divisor);
    case Dtype::u64: return fold_integers<std::uint64_t>(reduction.op, inputs, divisor);
    case Dtype::boolean: return fold_booleans(reduction.op, inputs);
    case Dtype::f64:
      return fold_floats<double>(dtype, reduction, inputs, divisor, result, balanced);
    case Dtype::f16:
    case Dtype::bf16:
    case Dtype::f32:
    case Dtype::f8e4m3:
    case Dtype::f8e5m2:
      return fold_floats<float>(dtype, reduction, inputs, divisor, result, balanced);
  }
  return {};
}

std::optional<std::string> difference(Dtype dtype, const Bytes& expected, const std::byte* got) {
  if (expected.empty() || std::memcmp(expected.data(), got, expected.size()) == 0)
    return std::nullopt;
  const std::size_t width = size_of(dtype);
  std::size_t wrong = 0;
  std::ostringstream text;
  for (std::size_t at = 0; at < expected.size(); at += width) {
    const std::byte* want = expected.data() + at;
    if (std::memcmp(want, got + at, width) == 0) continue;
    if (is_float(dtype) && std::isnan(decode(dtype, want)) && std::isnan(decode(dtype, got + at)))
      continue;
    if (wrong++ > 0) continue;
    std::uint64_t wanted = 0, found = 0;
    std::memcpy(&wanted, want, width);
    std::memcpy(&found, got + at, width);
    text << "element " << at / width << " is 0x" << std::hex << found << " and should be 0x"
         << wanted << std::dec;
    if (is_float(dtype))
      text << " (" << decode(dtype, got + at) << ", " << decode(dtype, want) << ")";
  }
  if (wrong == 0) return std::nullopt;
  text << "; " << wrong << " of " << expected.size() / width << " elements are wrong";
  return text.str();
}

const UserReduction& composition() {
  static const UserReduction user{"composition", &compose, nullptr, false};
  return user;
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15U + b * 0xC2B2AE3D27D4EB4FU + c * 0x165667B19E3779F9U;
  for (int round = 0; round < 2; ++round) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  }
  return x ^ (x >> 31);
}

std::uint64_t hash_of(const std::byte* data, std::size_t bytes) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ std::uint64_t(data[i])) * 0x100000001B3U;
  return hash;
}

}  // namespace tutti::test
