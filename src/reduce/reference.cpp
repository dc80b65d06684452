// fold_reference: the promise of fold.hpp written down one element at a time. Shares no code with
// the kernels but the scalar conversions of half.hpp, which are tested exhaustively on their own.
// Integers and booleans give the same bits whatever the shape, so they are folded from the left here.
#include <cmath>
#include <cstring>
#include <limits>

#include "core/check.hpp"
#include "reduce/half.hpp"
#include "reduce/kernels.hpp"
#include "reduce/storage.hpp"
#include "tutti/dtypes.hpp"

namespace tutti::reduce {
namespace {

template <class T>
T load(const void* base, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store(void* base, std::size_t i, T value) {
  std::memcpy(static_cast<char*>(base) + i * sizeof(T), &value, sizeof(T));
}

template <class T>
T combine_float(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premul_sum: return a + b;
    case ReduceOp::prod: return a * b;
    case ReduceOp::min:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
      if (a == b) return std::signbit(a) ? a : b;
      return a < b ? a : b;
    case ReduceOp::max:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
      if (a == b) return std::signbit(a) ? b : a;
      return a > b ? a : b;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::user: break;
  }
  TUTTI_CHECK(!"a sensible op");
  return a;
}

// Wide enough that nothing overflows on the way back to T, where it wraps.
template <class T>
T combine_integer(ReduceOp op, T a, T b) {
  const auto x = static_cast<std::uint64_t>(a);
  const auto y = static_cast<std::uint64_t>(b);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg: return static_cast<T>(x + y);
    case ReduceOp::prod: return static_cast<T>(x * y);
    case ReduceOp::min: return a < b ? a : b;
    case ReduceOp::max: return a > b ? a : b;
    case ReduceOp::band: return static_cast<T>(x & y);
    case ReduceOp::bor: return static_cast<T>(x | y);
    case ReduceOp::bxor: return static_cast<T>(x ^ y);
    case ReduceOp::premul_sum:
    case ReduceOp::user: break;
  }
  TUTTI_CHECK(!"a sensible op");
  return a;
}

bool combine_bool(ReduceOp op, bool a, bool b) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::max:
    case ReduceOp::bor: return a || b;
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::band: return a && b;
    case ReduceOp::bxor: return a != b;
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
    case ReduceOp::user: break;
  }
  TUTTI_CHECK(!"a sensible op");
  return a;
}

// Element `i` of a float fold: `read` gives the accumulation type, `write` rounds.
template <class Acc, class Read, class Write>
void float_element(const Folding& folding, std::span<const Operand> operands, Read read,
                   Write write) {
  const ReduceOp op = folding.reduction.op;
  const auto enter = [&](const Operand& operand) {
    const Acc value = read(operand.data);
    const bool scaled = op == ReduceOp::premul_sum && operand.raw;
    return scaled ? value * static_cast<Acc>(folding.reduction.scalar) : value;
  };
  const auto fold = [&](auto again, std::span<const Operand> some) -> Acc {
    if (folding.balanced && some.size() > 1) {
      std::size_t half = 1;
      while (2 * half < some.size()) half *= 2;
      return combine_float(op, again(again, some.first(half)), again(again, some.subspan(half)));
    }
    Acc acc = enter(some[0]);
    for (const Operand& operand : some.subspan(1)) acc = combine_float(op, acc, enter(operand));
    return acc;
  };
  Acc acc = fold(fold, operands);
  if (op == ReduceOp::avg && folding.finish) acc = acc / static_cast<Acc>(folding.ranks);
  write(std::isnan(acc) ? std::numeric_limits<Acc>::quiet_NaN() : acc);
}

template <class T>
void integer_element(const Folding& folding, void* dst, std::span<const Operand> operands,
                     std::size_t i) {
  T acc = load<T>(operands[0].data, i);
  for (const Operand& operand : operands.subspan(1))
    acc = combine_integer(folding.reduction.op, acc, load<T>(operand.data, i));
  if (folding.reduction.op == ReduceOp::avg && folding.finish) {
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    acc = static_cast<T>(static_cast<Wide>(acc) / static_cast<Wide>(folding.ranks));
  }
  store(dst, i, acc);
}

void bool_element(const Folding& folding, void* dst, std::span<const Operand> operands,
                  std::size_t i) {
  bool acc = load<std::uint8_t>(operands[0].data, i) != 0;
  for (const Operand& operand : operands.subspan(1))
    acc = combine_bool(folding.reduction.op, acc, load<std::uint8_t>(operand.data, i) != 0);
  store<std::uint8_t>(dst, i, acc ? 1 : 0);
}

template <int Exp, int Man, bool Infinite>
void narrow_element(const Folding& folding, void* dst, std::span<const Operand> operands,
                    std::size_t i) {
  using Storage = Natural<(1 + Exp + Man) / 8>;
  float_element<float>(
      folding, operands,
      [&](const void* data) { return to_f32<Exp, Man, Infinite>(load<Storage>(data, i)); },
      [&](float value) {
        if (folding.widens) return store(dst, i, value);
        store(dst, i, static_cast<Storage>(from_f32<Exp, Man, Infinite>(value)));
      });
}

template <class T>
void whole_element(const Folding& folding, void* dst, std::span<const Operand> operands,
                   std::size_t i) {
  float_element<T>(
      folding, operands, [&](const void* data) { return load<T>(data, i); },
      [&](T value) { store(dst, i, value); });
}

template <DtypeKind Kind, int Bytes, int Exp, int Man>
void element(const Folding& folding, void* dst, std::span<const Operand> operands, std::size_t i) {
  if constexpr (Kind == DtypeKind::truth)
    bool_element(folding, dst, operands, i);
  else if constexpr (Kind == DtypeKind::integer)
    integer_element<Integer<Bytes>>(folding, dst, operands, i);
  else if constexpr (Kind == DtypeKind::natural)
    integer_element<Natural<Bytes>>(folding, dst, operands, i);
  else if constexpr (Bytes == sizeof(double))
    whole_element<double>(folding, dst, operands, i);
  else if constexpr (Bytes == sizeof(float))
    whole_element<float>(folding, dst, operands, i);
  else
    narrow_element<Exp, Man, Kind == DtypeKind::real>(folding, dst, operands, i);
}

void fold_element(const Folding& folding, void* dst, std::span<const Operand> operands,
                  std::size_t i) {
  switch (folding.dtype) {
#define TUTTI_DTYPE(name, NAME, word, kind, bytes, exponent, mantissa, ...) \
  case Dtype::name:                                                         \
    return element<DtypeKind::kind, bytes, exponent, mantissa>(folding, dst, operands, i);
#include "tutti/dtypes.def"
#undef TUTTI_DTYPE
  }
}

}  // namespace

void fold_reference(const Folding& folding, void* dst, std::span<const Operand> operands,
                    std::size_t count) {
  TUTTI_CHECK(!operands.empty());
  if (folding.reduction.op == ReduceOp::user)
    return fold_by_user(*plain_kernels(), folding, {&dst, 1, 0}, operands, count);
  if (is_plain_copy(folding, operands)) {
    if (count > 0) std::memmove(dst, operands[0].data, count * size_of(folding.dtype));
    return;
  }
  for (std::size_t i = 0; i < count; ++i) fold_element(folding, dst, operands, i);
}

}  // namespace tutti::reduce
