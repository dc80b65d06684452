// mesh/arrangement.hpp - a layout as the search sees it: which axes cut which dimension, in which order.
//
//   (shard(0), shard(0), partial(sum))  cuts {{0, 1}, {}}, partial {2}
//
// Axes that neither cut nor are partial are replicated. Two layouts with one arrangement put the same
// boxes on the same ranks. Axes of size 1 are left out: along them everything is everything.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/tensor_layout.hpp"

namespace tutti::mesh {

using AxisSet = std::uint32_t;  // bit a: axis a
inline AxisSet set_of(int axis) { return AxisSet{1} << axis; }
std::vector<int> axes_in(AxisSet set);

struct Arrangement {
  std::vector<std::vector<int>> cuts;  // by dimension: axes, the first cuts first
  AxisSet partial = 0;

  static Arrangement of(const TensorLayout& layout);
  // With the axes, shape, type and operation of `like`; axes of size 1 are replicated.
  TensorLayout layout(const TensorLayout& like, ReduceOp op) const;

  AxisSet sharded() const;
  friend auto operator<=>(const Arrangement&, const Arrangement&) = default;
  friend bool operator==(const Arrangement&, const Arrangement&) = default;
};

TensorBox box_of(const Arrangement& arrangement, std::span<const std::int64_t> shape,
                 const MeshAxes& axes, const Coordinates& coordinates);
// Elements of the largest box, which is that of position 0.
std::int64_t largest_count(const Arrangement& arrangement, std::span<const std::int64_t> shape,
                           const MeshAxes& axes);

}  // namespace tutti::mesh
