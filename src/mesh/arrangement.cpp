#include "mesh/arrangement.hpp"

#include <algorithm>
#include <numeric>

namespace tutti::mesh {
namespace {

struct Stretch {
  std::int64_t first = 0;
  std::int64_t length = 0;

  // Part `index` of `parts`, by torch's chunk rule.
  Stretch part(int index, int parts) const {
    const std::int64_t longest = (length + parts - 1) / parts;
    const std::int64_t begin = std::min(length, index * longest);
    return {first + begin, std::min(length, begin + longest) - begin};
  }
};

}  // namespace

std::vector<int> axes_in(AxisSet set) {
  std::vector<int> axes;
  for (int axis = 0; set >> axis != 0; ++axis)
    if ((set & set_of(axis)) != 0) axes.push_back(axis);
  return axes;
}

Arrangement Arrangement::of(const TensorLayout& layout) {
  Arrangement made;
  made.cuts.resize(layout.shape.size());
  std::vector<int> order = layout.nesting;
  if (order.empty()) {
    order.resize(layout.axes.size());
    std::iota(order.begin(), order.end(), 0);
  }
  for (const int axis : order) {
    const AxisPlacement& placement = layout.placements[static_cast<std::size_t>(axis)];
    if (layout.axes[static_cast<std::size_t>(axis)].size == 1) continue;
    if (placement.kind == AxisPlacement::Kind::shard)
      made.cuts[static_cast<std::size_t>(placement.dimension)].push_back(axis);
    if (placement.kind == AxisPlacement::Kind::partial) made.partial |= set_of(axis);
  }
  return made;
}

TensorLayout Arrangement::layout(const TensorLayout& like, ReduceOp op) const {
  TensorLayout made = like;
  made.placements.assign(like.axes.size(), replicate());
  made.nesting.clear();
  bool in_order = true;
  std::vector<int> order;
  for (std::size_t dimension = 0; dimension < cuts.size(); ++dimension) {
    in_order = in_order && std::is_sorted(cuts[dimension].begin(), cuts[dimension].end());
    for (const int axis : cuts[dimension]) {
      made.placements[static_cast<std::size_t>(axis)] = shard(static_cast<int>(dimension));
      order.push_back(axis);
    }
  }
  for (const int axis : axes_in(partial))
    made.placements[static_cast<std::size_t>(axis)] = tutti::partial(op);
  if (in_order) return made;
  for (int axis = 0; axis < static_cast<int>(like.axes.size()); ++axis)
    if ((sharded() & set_of(axis)) == 0) order.push_back(axis);
  made.nesting = std::move(order);
  return made;
}

AxisSet Arrangement::sharded() const {
  AxisSet set = 0;
  for (const auto& axes : cuts)
    for (const int axis : axes) set |= set_of(axis);
  return set;
}

TensorBox box_of(const Arrangement& arrangement, std::span<const std::int64_t> shape,
                 const MeshAxes& axes, const Coordinates& coordinates) {
  TensorBox box;
  for (std::size_t dimension = 0; dimension < shape.size(); ++dimension) {
    Stretch stretch{0, shape[dimension]};
    for (const int axis : arrangement.cuts[dimension]) {
      const auto index = static_cast<std::size_t>(axis);
      stretch = stretch.part(coordinates[index], axes[index].size);
    }
    box.first.push_back(stretch.first);
    box.shape.push_back(stretch.length);
  }
  return box;
}

std::int64_t largest_count(const Arrangement& arrangement, std::span<const std::int64_t> shape,
                           const MeshAxes& axes) {
  return box_of(arrangement, shape, axes, Coordinates(axes.size(), 0)).count();
}

}  // namespace tutti::mesh
