#include "tutti/types.hpp"

#include <array>

#include "tutti/dtypes.hpp"
#include "tutti/shape.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {
namespace {

constexpr std::array<std::string_view, kReduceOps> kReduceOpWords = {
    "sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "premul_sum", "user"};
constexpr std::array<std::string_view, kAlgorithms> kAlgorithmWords = {
    "automatic",
#define TUTTI_ALGORITHM(word, WORD) #word,
#include "tutti/algorithms.def"
#undef TUTTI_ALGORITHM
    "custom",
};

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

std::size_t size_of(Dtype dtype) noexcept { return info_of(dtype).bytes; }
bool is_float(Dtype dtype) noexcept { return info_of(dtype).is_float(); }

std::string_view to_string(Dtype dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  return index < kDtypeInfos.size() ? kDtypeInfos[index].word : "?";
}
std::optional<Dtype> parse_dtype(std::string_view word) noexcept {
  return find_dtype([&](const DtypeInfo& info) { return info.word == word; });
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
    case ReduceOp::avg: return info_of(dtype).kind != DtypeKind::truth;
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
  switch (order) {
    case ReductionOrder::any: return "any";
    case ReductionOrder::rank: return "rank";
    case ReductionOrder::tree: return "tree";
  }
  return "?";
}
std::optional<ReductionOrder> parse_reduction_order(std::string_view word) noexcept {
  for (int i = 0; i < kReductionOrders; ++i)
    if (const auto order = static_cast<ReductionOrder>(i); word == to_string(order)) return order;
  return std::nullopt;
}

std::string_view to_string(Urgency urgency) noexcept {
  switch (urgency) {
    case Urgency::bulk: return "bulk";
    case Urgency::normal: return "normal";
    case Urgency::urgent: return "urgent";
  }
  return "?";
}

}  // namespace v1
}  // namespace tutti
