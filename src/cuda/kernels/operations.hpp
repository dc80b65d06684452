// cuda/kernels/operations.hpp - each ReduceOp on numbers; the rules are those of reduce/make_kernels.hpp.
//
//   enter(x, raw)   what is done to an operand first
//   combine(a, b)   the step of the fold, from the left
//   leave(x)        what is done to the result, before it is rounded
//
// E is the element (elements.hpp). An operation is made once per thread from the launch's numbers.
#pragma once

#include <type_traits>

#include "cuda/kernels/elements.hpp"

namespace tutti::cuda::kernels {

template <class E>
struct PlainOp {
  using Number = typename E::Number;
  static constexpr bool kLong = false;  // takes many instructions, and registers for them
  TUTTI_DEVICE explicit PlainOp(const Fold&) {}
  TUTTI_DEVICE Number enter(Number x, bool) const { return x; }
  TUTTI_DEVICE Number leave(Number x) const { return x; }
};

template <class E>
struct SumOp : PlainOp<E> {
  using Number = typename E::Number;
  using PlainOp<E>::PlainOp;
  // Integers wrap, which signed ones may not do.
  TUTTI_DEVICE static Number combine(Number a, Number b) {
    if constexpr (std::is_integral_v<Number>) {
      using Natural = std::make_unsigned_t<Number>;
      return static_cast<Number>(static_cast<Natural>(a) + static_cast<Natural>(b));
    } else {
      return a + b;
    }
  }
};

// Of floats, and of naturals of 32 bits or more: signed integers are multiplied as those.
template <class E>
struct ProdOp : PlainOp<E> {
  using Number = typename E::Number;
  using PlainOp<E>::PlainOp;
  static_assert(!std::is_integral_v<Number> || std::is_unsigned_v<Number>);
  TUTTI_DEVICE static Number combine(Number a, Number b) { return a * b; }
};

template <class E>
struct AndOp : PlainOp<E> {
  using Number = typename E::Number;
  using PlainOp<E>::PlainOp;
  TUTTI_DEVICE static Number combine(Number a, Number b) { return a & b; }
};
template <class E>
struct OrOp : PlainOp<E> {
  using Number = typename E::Number;
  using PlainOp<E>::PlainOp;
  TUTTI_DEVICE static Number combine(Number a, Number b) { return a | b; }
};
template <class E>
struct XorOp : PlainOp<E> {
  using Number = typename E::Number;
  using PlainOp<E>::PlainOp;
  TUTTI_DEVICE static Number combine(Number a, Number b) { return a ^ b; }
};

// Equal floats differ at most in the sign of zero, and there the union of the bits is the smaller,
// their intersection the larger. A NaN on the right fails both comparisons and is taken; one on the
// left is asked for.
template <class E, bool Smaller>
struct ExtremeOp : PlainOp<E> {
  using Number = typename E::Number;
  using PlainOp<E>::PlainOp;
  TUTTI_DEVICE static Number combine(Number a, Number b) {
    const Number result = (Smaller ? a < b : a > b) ? a : b;
    if constexpr (std::is_integral_v<Number>) {
      return result;
    } else {
      using Bits = reduce::Natural<sizeof(Number)>;
      const Bits x = reduce::lanes::as<Bits>(a);
      const Bits y = reduce::lanes::as<Bits>(b);
      const Number equal = reduce::lanes::as<Number>(Smaller ? x | y : x & y);
      return a != a ? a : a == b ? equal : result;
    }
  }
};
template <class E>
using MinOp = ExtremeOp<E, true>;
template <class E>
using MaxOp = ExtremeOp<E, false>;

// Divides. Integers truncate, after the sum has wrapped to its own size.
template <class E>
struct AvgOp : SumOp<E> {
  using Number = typename E::Number;
  static constexpr bool kLong = true;
  Number ranks;
  TUTTI_DEVICE explicit AvgOp(const Fold& fold)
      : SumOp<E>(fold), ranks(static_cast<Number>(fold.ranks)) {}
  TUTTI_DEVICE Number leave(Number sum) const {
    if constexpr (std::is_integral_v<Number>) sum = E::open(E::close(sum));
    return sum / ranks;
  }
};

// A partial fold has its factors in it already.
template <class E>
struct PremulSumOp : SumOp<E> {
  using Number = typename E::Number;
  Number scalar;
  TUTTI_DEVICE explicit PremulSumOp(const Fold& fold)
      : SumOp<E>(fold), scalar(static_cast<Number>(fold.scalar)) {}
  TUTTI_DEVICE Number enter(Number x, bool raw) const { return raw ? x * scalar : x; }
};

}  // namespace tutti::cuda::kernels
