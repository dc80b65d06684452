// How make_values picks elements. For `exact` every partial result of every order of folding must
// be representable, also in three bits of fraction and with sixteen ranks; that is what the small
// ranges below are for.
#include <bit>
#include <cmath>
#include <cstring>

#include "support/reference.hpp"

namespace tutti::test {
namespace {

// The largest magnitude such that sixteen of them add up without rounding.
int exact_range(Dtype dtype) {
  switch (dtype) {
    case Dtype::f8e4m3:
    case Dtype::f8e5m2: return 1;
    case Dtype::bf16: return 16;
    case Dtype::f16: return 64;
    default: return 1000;
  }
}

double exact_number(const Recipe& recipe, int rank, std::uint64_t bits) {
  if (recipe.op == ReduceOp::prod) {
    // Signs, and powers of two on few ranks: fractions stay 1 and exponents small.
    const double magnitude = rank < 4 ? (bits & 2U ? 2.0 : 1.0) : 1.0;
    return bits & 1U ? -magnitude : magnitude;
  }
  // Two bits of fraction hold every integer up to 8 only: f8e5m2 gets values on half of the ranks.
  if (recipe.dtype == Dtype::f8e5m2 && rank % 2 == 1) return 0.0;
  const int range = exact_range(recipe.dtype);
  return static_cast<double>(bits % static_cast<unsigned>(2 * range + 1)) - range;
}

// Finite, over some twenty powers of two, so that sums round at almost every step.
double arbitrary_number(Dtype dtype, std::uint64_t bits) {
  const int spread = dtype == Dtype::f8e4m3 || dtype == Dtype::f8e5m2 ? 4 : 10;
  const double fraction = 1.0 + static_cast<double>(bits >> 12) * 0x1p-52;
  const int exponent = static_cast<int>(bits >> 1 & 0x3FFU) % (2 * spread + 1) - spread;
  return std::ldexp(bits & 1U ? -fraction : fraction, exponent);
}

}  // namespace

Bytes make_values(const Recipe& recipe, int rank, std::size_t first, std::size_t count) {
  const std::size_t width = size_of(recipe.dtype);
  Bytes values(count * width);
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* element = values.data() + i * width;
    const std::uint64_t bits = mix(recipe.seed, static_cast<std::uint64_t>(rank) + 1, first + i);
    if (recipe.dtype == Dtype::boolean) {
      *element = static_cast<std::byte>(bits & 1U);
    } else if (!is_float(recipe.dtype)) {
      std::memcpy(element, &bits, width);  // any integers: they wrap, in whatever order
    } else {
      encode(recipe.dtype,
             recipe.values == Values::exact ? exact_number(recipe, rank, bits)
                                            : arbitrary_number(recipe.dtype, bits),
             element);
    }
  }
  return values;
}

}  // namespace tutti::test
