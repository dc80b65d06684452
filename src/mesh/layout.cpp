// What each rank holds of a tensor, and layouts as text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/words.hpp"
#include "mesh/arrangement.hpp"
#include "tutti/tensor_layout.hpp"

namespace tutti {
inline namespace v1 {
namespace {

using Kind = AxisPlacement::Kind;

// A tensor of more elements cannot be counted in bytes.
constexpr std::int64_t kMostElements = std::int64_t{1} << 58;
constexpr std::size_t kMostDigits = 6;  // of a dimension's number

Status refuse_layout(std::string what) {
  return {Code::invalid_argument, "layout: " + std::move(what)};
}

bool folds_by_itself(ReduceOp op) { return op != ReduceOp::premul_sum && op != ReduceOp::user; }

Result<AxisPlacement> parse_placement(std::string_view word) {
  const auto open = word.find('(');
  const std::string_view name = word.substr(0, open);
  std::string_view argument;
  if (open != std::string_view::npos && word.back() == ')')
    argument = word.substr(open + 1, word.size() - open - 2);
  const bool is_bare = open == std::string_view::npos;
  if (name == "replicate" && is_bare) return replicate();
  if (name == "partial" && is_bare) return partial();
  if (name == "partial")
    if (const auto op = parse_reduce_op(argument); op && folds_by_itself(*op)) return partial(*op);
  if (name == "shard" && argument.size() <= kMostDigits)
    if (const auto dimension = parse_integer(argument); dimension.ok() && *dimension >= 0)
      return shard(static_cast<int>(*dimension));
  return Status(Code::invalid_argument,
                fmt::format("'{}' is no placement: shard(DIMENSION), replicate or partial(OP), "
                            "such as shard(0) and partial(sum)",
                            word));
}

Status check_shape(const TensorLayout& layout) {
  std::int64_t elements = 1;
  for (const std::int64_t length : layout.shape) {
    if (length < 0) return refuse_layout(fmt::format("a dimension has length {}", length));
    if (length > 0 && elements > kMostElements / length)
      return refuse_layout(fmt::format("{} has too many elements", fmt::join(layout.shape, "x")));
    elements *= std::max<std::int64_t>(length, 1);
  }
  return {};
}

Status check_placement(const TensorLayout& layout, std::size_t axis) {
  const AxisPlacement& placement = layout.placements[axis];
  const std::string& name = layout.axes[axis].name;
  if (placement.kind == Kind::shard &&
      (placement.dimension < 0 || placement.dimension >= static_cast<int>(layout.shape.size())))
    return refuse_layout(fmt::format("{} along '{}', and the tensor has {} dimension{}",
                                     to_string(placement), name, layout.shape.size(),
                                     layout.shape.size() == 1 ? "" : "s"));
  if (placement.kind != Kind::partial) return {};
  if (!folds_by_itself(placement.op))
    return refuse_layout(
        fmt::format("{} along '{}': sum, prod, min, max, avg, band, bor and bxor "
                    "can be partial",
                    to_string(placement), name));
  if (!is_sensible(placement.op, layout.dtype))
    return refuse_layout(fmt::format("{} along '{}' has no meaning on {}", to_string(placement),
                                     name, to_string(layout.dtype)));
  // Folds by different operations do not commute: nobody could say what the tensor is.
  for (std::size_t other = 0; other < axis; ++other)
    if (const AxisPlacement& before = layout.placements[other];
        before.kind == Kind::partial && before.op != placement.op)
      return refuse_layout(fmt::format("{} along '{}' and {} along '{}': their order would matter",
                                       to_string(before), layout.axes[other].name,
                                       to_string(placement), name));
  return {};
}

Status check_nesting(const TensorLayout& layout) {
  if (layout.nesting.empty()) return {};
  std::vector<int> sorted = layout.nesting;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<int>(i) || sorted.size() != layout.axes.size())
      return refuse_layout(fmt::format("nesting {} is no order of {} axes",
                                       fmt::join(layout.nesting, ", "), layout.axes.size()));
  return {};
}

}  // namespace

AxisPlacement shard(int dimension) { return {Kind::shard, dimension, ReduceOp::sum}; }
AxisPlacement replicate() { return {}; }
AxisPlacement partial(ReduceOp op) { return {Kind::partial, 0, op}; }

std::string to_string(const AxisPlacement& placement) {
  switch (placement.kind) {
    case Kind::replicate: return "replicate";
    case Kind::shard: return fmt::format("shard({})", placement.dimension);
    case Kind::partial: return fmt::format("partial({})", to_string(placement.op));
  }
  return "?";
}

std::string to_string(const std::vector<AxisPlacement>& placements) {
  std::string text;
  for (const AxisPlacement& placement : placements)
    text += (text.empty() ? "" : ", ") + to_string(placement);
  return text;
}

Result<std::vector<AxisPlacement>> parse_placements(std::string_view text) {
  std::vector<AxisPlacement> placements;
  for (const std::string_view word : split_words(text, ',')) {
    const auto placement = parse_placement(word);
    if (!placement.ok()) return placement.status();
    placements.push_back(*placement);
  }
  return placements;
}

std::int64_t TensorBox::count() const {
  std::int64_t elements = 1;
  for (const std::int64_t length : shape) elements *= length;
  return elements;
}

Status TensorLayout::check() const {
  if (Status status = check_axes(axes); !status.ok()) return status;
  if (placements.size() != axes.size())
    return refuse_layout(fmt::format("{} placements ({}) for {} axes ({})", placements.size(),
                                     to_string(placements), axes.size(), to_string(axes)));
  if (Status status = check_shape(*this); !status.ok()) return status;
  for (std::size_t axis = 0; axis < axes.size(); ++axis)
    if (Status status = check_placement(*this, axis); !status.ok()) return status;
  return check_nesting(*this);
}

TensorBox TensorLayout::box(const Coordinates& coordinates) const {
  return mesh::box_of(mesh::Arrangement::of(*this), shape, axes, coordinates);
}

std::string to_string(const TensorLayout& layout) {
  std::string text =
      fmt::format("({}) of {} {}", to_string(layout.placements),
                  layout.shape.empty() ? "1" : fmt::to_string(fmt::join(layout.shape, "x")),
                  to_string(layout.dtype));
  if (layout.nesting.empty()) return text;
  text += ", cut by";
  for (const int axis : layout.nesting)
    text += " " + layout.axes[static_cast<std::size_t>(axis)].name;
  return text;
}

}  // namespace v1
}  // namespace tutti
