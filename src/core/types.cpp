#include "tutti/types.hpp"

#include <array>

#include "tutti/shape.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {
namespace {

constexpr std::array<std::string_view, kDtypes> kDtypeWords = {
    "i8",  "u8",   "i16", "u16", "i32",  "u32",    "i64",   "u64",
    "f16", "bf16", "f32", "f64", "bool", "f8e4m3", "f8e5m2"};
constexpr std::array<std::uint8_t, kDtypes> kDtypeSizes = {1, 1, 2, 2, 4, 4, 8, 8,
                                                           2, 2, 4, 8, 1, 1, 1};
constexpr std::array<std::string_view, kReduceOps> kReduceOpWords = {
    "sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "premul_sum", "user"};
constexpr std::array<std::string_view, kAlgorithms> kAlgorithmWords = {"automatic",
                                                                       "direct",
                                                                       "linear",
                                                                       "ring",
                                                                       "binomial_tree",
                                                                       "double_binary_tree",
                                                                       "recursive_doubling",
                                                                       "halving_doubling",
                                                                       "hypercube",
                                                                       "bruck",
                                                                       "pairwise",
                                                                       "torus_2d",
                                                                       "hierarchical"};

template <class Enum, std::size_t N>
std::optional<Enum> parse(const std::array<std::string_view, N>& words, std::string_view word) {
  for (std::size_t i = 0; i < N; ++i)
    if (words[i] == word) return static_cast<Enum>(i);
  return std::nullopt;
}

template <class Enum, std::size_t N>
std::string_view word_of(const std::array<std::string_view, N>& words, Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? words[index] : "?";
}

}  // namespace

std::size_t size_of(Dtype dtype) noexcept { return kDtypeSizes[static_cast<std::size_t>(dtype)]; }

bool is_float(Dtype dtype) noexcept {
  switch (dtype) {
    case Dtype::f16:
    case Dtype::bf16:
    case Dtype::f32:
    case Dtype::f64:
    case Dtype::f8e4m3:
    case Dtype::f8e5m2: return true;
    default: return false;
  }
}

std::string_view to_string(Dtype dtype) noexcept { return word_of(kDtypeWords, dtype); }
std::optional<Dtype> parse_dtype(std::string_view word) noexcept {
  return parse<Dtype>(kDtypeWords, word);
}

std::string_view to_string(ReduceOp op) noexcept { return word_of(kReduceOpWords, op); }
std::optional<ReduceOp> parse_reduce_op(std::string_view word) noexcept {
  return parse<ReduceOp>(kReduceOpWords, word);
}

bool is_sensible(ReduceOp op, Dtype dtype) noexcept {
  switch (op) {
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor: return !is_float(dtype);
    case ReduceOp::avg: return dtype != Dtype::boolean;
    case ReduceOp::premul_sum: return is_float(dtype);
    default: return true;
  }
}

std::string_view to_string(Collective collective) noexcept {
  const auto index = static_cast<std::size_t>(collective);
  return index < kCollectiveShapes.size() ? kCollectiveShapes[index].word : "?";
}
std::optional<Collective> parse_collective(std::string_view word) noexcept {
  for (std::size_t i = 0; i < kCollectiveShapes.size(); ++i)
    if (kCollectiveShapes[i].word == word) return static_cast<Collective>(i);
  return std::nullopt;
}

bool has_root(Collective collective) noexcept { return shape_of(collective).rooted; }
bool has_reduction(Collective collective) noexcept { return shape_of(collective).folds(); }

std::string_view to_string(Algorithm algorithm) noexcept {
  return word_of(kAlgorithmWords, algorithm);
}
std::optional<Algorithm> parse_algorithm(std::string_view word) noexcept {
  return parse<Algorithm>(kAlgorithmWords, word);
}

std::string_view to_string(ReductionOrder order) noexcept {
  return order == ReductionOrder::any ? "any" : "rank";
}

}  // namespace v1
}  // namespace tutti
