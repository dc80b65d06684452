// tutti/types.hpp - the vocabulary: element types, reductions, collectives, algorithms.
//
// Every enumerator is the word that is printed, parsed, put into JSON and used in the docs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/cpp20.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

// i8 … u64, f16, bf16, f32, f64, boolean, f8e4m3 …: all of tutti/dtypes.def; more in dtypes.hpp.
enum class Dtype : std::uint8_t {
#define TUTTI_DTYPE(name, ...) name,
#include "tutti/dtypes.def"
#undef TUTTI_DTYPE
};
inline constexpr int kDtypes = 0
#define TUTTI_DTYPE(...) +1
#include "tutti/dtypes.def"
#undef TUTTI_DTYPE
    ;

std::size_t size_of(Dtype dtype) noexcept;
bool is_float(Dtype dtype) noexcept;
std::string_view to_string(Dtype dtype) noexcept;  // Dtype::boolean prints as "bool"
std::optional<Dtype> parse_dtype(std::string_view word) noexcept;

// Numerics: integers wrap; bool sum is or, bool prod is and; avg divides by the size of the group (in
// scans too), integer avg truncates toward zero;
// min and max propagate NaN and take -0 < +0; f8e4m3 saturates, f8e5m2 overflows to infinity.
// 16- and 8-bit floats are folded in f32 and rounded once per fold, or not at all where the output is f32.
enum class ReduceOp : std::uint8_t { sum, prod, min, max, avg, band, bor, bxor, premul_sum, user };
inline constexpr int kReduceOps = 10;

std::string_view to_string(ReduceOp op) noexcept;
std::optional<ReduceOp> parse_reduce_op(std::string_view word) noexcept;
// Whether `op` has a meaning on `dtype`; bit operations have none on floats.
bool is_sensible(ReduceOp op, Dtype dtype) noexcept;

// inout[i] = in[i] ∘ inout[i]; `in` is the operand of the lower rank.
using ReduceFunction = void (*)(const void* in, void* inout, std::size_t count, Dtype dtype,
                                void* context);

// A reduction written by the user. It must give the same answer on every rank; its name is part of
// the fingerprint that ranks compare. One that is not commutative is folded in rank or tree order only.
struct UserReduction {
  std::string name;
  ReduceFunction function = nullptr;
  void* context = nullptr;
  bool commutative = true;
};

// What to fold with: a ReduceOp, with the scalar or the function that two of them need.
// `user` is lent until the Work is done.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  double scalar =
      1.0;  // premul_sum: every contribution is multiplied by it first; same on all ranks
  const UserReduction* user = nullptr;

  Reduction() = default;
  Reduction(ReduceOp plain) : op(plain) {}
  static Reduction premul_sum(double scalar) {
    Reduction reduction(ReduceOp::premul_sum);
    reduction.scalar = scalar;
    return reduction;
  }
  static Reduction by(const UserReduction& user) {
    Reduction reduction(ReduceOp::user);
    reduction.user = &user;
    return reduction;
  }
};

// broadcast, reduce, all_reduce …: all of tutti/collectives.def; tutti/shape.hpp says what each
// looks like.
enum class Collective : std::uint8_t {
#define TUTTI_SHAPE(word, ...) word,
#include "tutti/collectives.def"
#undef TUTTI_SHAPE
};
inline constexpr int kCollectives = 0
#define TUTTI_SHAPE(...) +1
#include "tutti/collectives.def"
#undef TUTTI_SHAPE
    ;

std::string_view to_string(Collective collective) noexcept;
std::optional<Collective> parse_collective(std::string_view word) noexcept;
bool has_root(Collective collective) noexcept;  // broadcast reduce gather scatter
bool has_reduction(Collective collective) noexcept;

enum class Algorithm : std::uint8_t {
  automatic,  // the library chooses
// direct, linear, ring …: all of tutti/algorithms.def; docs/algorithms has a page on each.
#define TUTTI_ALGORITHM(word, WORD) word,
#include "tutti/algorithms.def"
#undef TUTTI_ALGORITHM
  custom,  // one that the program has brought along (docs/extending.md)
};
inline constexpr int kAlgorithms = static_cast<int>(Algorithm::custom) + 1;

std::string_view to_string(Algorithm algorithm) noexcept;
std::optional<Algorithm> parse_algorithm(std::string_view word) noexcept;

// In which order a reduction folds the ranks' contributions.
//   any   same bits on all ranks, and in every run with the same tuning; the fastest schedule may
//         pick the order
//   rank  x0 ∘ x1 ∘ … ∘ xn-1, folded left to right in the accumulation type and rounded once:
//         same bits whatever the algorithm, transport, memory or chunking
//   tree  the same promise for a tree that is balanced by rank number: fold(0, n), where
//         fold(lo, hi) = fold(lo, mid) ∘ fold(mid, hi) and mid - lo is the largest power of two below
//         hi - lo. Hosts with contiguous ranks, as many on each and a power of two, fold theirs first
enum class ReductionOrder : std::uint8_t { any, rank, tree };
inline constexpr int kReductionOrders = 3;
std::string_view to_string(ReductionOrder order) noexcept;
std::optional<ReductionOrder> parse_reduction_order(std::string_view word) noexcept;

// Which of a rank's groups goes first where several want the same link or core.
//   bulk    gives way to all others: buckets of gradients and weights
//   urgent  goes before all others: activations that a stage waits for, decisions, metrics
enum class Urgency : std::uint8_t { bulk, normal, urgent };
std::string_view to_string(Urgency urgency) noexcept;

}  // namespace v1
}  // namespace tutti
