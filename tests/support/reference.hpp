// support/reference.hpp - what collectives must give, computed the plain way.
//
// Shares no arithmetic with the library: small floats are rounded by scaling with powers of two,
// folds go one element at a time in rank order or as a tree, in the accumulation type of tutti/types.hpp,
// rounded once.
//
// Inputs are a function of (seed, rank, index), so every rank knows everybody's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/types.hpp"

namespace tutti::test {

using Bytes = std::vector<std::byte>;

//   exact      small values for which every order of folding gives the same bits
//   arbitrary  any finite values: the order shows in the last bits
enum class Values { exact, arbitrary };

struct Recipe {
  Dtype dtype = Dtype::f32;
  ReduceOp op = ReduceOp::sum;
  Values values = Values::exact;
  std::uint64_t seed = 1;
};

// `count` elements of rank `rank`, from index `first` on.
Bytes make_values(const Recipe& recipe, int rank, std::size_t first, std::size_t count);

// The fold of inputs[0] … inputs.back() in that order, from the left or balanced as ReductionOrder::tree
// is; `divisor` is avg's. Of type `result`, which is `dtype` or, of 16- and 8-bit floats, f32.
Bytes fold_in_order(Dtype dtype, const Reduction& reduction, const std::vector<Bytes>& inputs,
                    int divisor, Dtype result, bool balanced = false);
inline Bytes fold_in_order(Dtype dtype, const Reduction& reduction,
                           const std::vector<Bytes>& inputs, int divisor) {
  return fold_in_order(dtype, reduction, inputs, divisor, dtype);
}

// Where and how `got` differs; any NaN is as good as any other. Absent when it does not.
std::optional<std::string> difference(Dtype dtype, const Bytes& expected, const std::byte* got);

// An element as a number, and a number as the nearest element (ties to even; f8e4m3 saturates).
double decode(Dtype dtype, const std::byte* element);
void encode(Dtype dtype, double value, std::byte* element);

// Affine maps a·x + b over integers modulo 2^32, composed: associative, not commutative. For u64.
const UserReduction& composition();

// A well-mixed 64-bit function.
std::uint64_t mix(std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0);

std::uint64_t hash_of(const std::byte* data, std::size_t bytes);

}  // namespace tutti::test
