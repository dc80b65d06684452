// tutti/tensor_layout.hpp - which part of a tensor each rank of a mesh holds.
//
// For each axis of the mesh a tensor is
//   shard(d)     cut along dimension d: the rank with coordinate c has part c, by torch's chunk rule
//                (parts of ⌈size / ranks⌉; later ranks have less, or nothing)
//   replicate()  the same on all ranks along the axis
//   partial(op)  as large on all of them, and yet to be folded: the tensor is op of what they hold
// Several axes may shard one dimension: the earlier axis cuts first, the later one cuts its parts,
// unless `nesting` says otherwise. What a rank holds is a box of the tensor, row by row.
//
// Pure; tutti/redistribution.hpp moves tensors from one layout to another.
//
//   const tutti::TensorLayout layout{{{"dp", 2}, {"tp", 4}}, {tutti::shard(0), tutti::replicate()},
//                                    {1024, 4096}, tutti::Dtype::bf16};
//   layout.box({1, 3});     // {first {512, 0}, shape {512, 4096}}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/mesh_axes.hpp"
#include "tutti/types.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

struct AxisPlacement {
  enum class Kind : std::uint8_t { replicate, shard, partial };
  Kind kind = Kind::replicate;
  int dimension = 0;            // shard: which one is cut
  ReduceOp op = ReduceOp::sum;  // partial: how the ranks' values make the tensor

  friend bool operator==(const AxisPlacement&, const AxisPlacement&) = default;
};
AxisPlacement shard(int dimension);
AxisPlacement replicate();
// sum, prod, min, max, avg, band, bor or bxor.
AxisPlacement partial(ReduceOp op = ReduceOp::sum);

// "shard(0)", "replicate", "partial(sum)".
std::string to_string(const AxisPlacement& placement);
// "shard(0), replicate".
std::string to_string(const std::vector<AxisPlacement>& placements);
// The same read: one for each axis. invalid_argument names the word that is none.
Result<std::vector<AxisPlacement>> parse_placements(std::string_view text);

// A part of a tensor: where it begins, and how long it is along each dimension.
struct TensorBox {
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> shape;

  std::int64_t count() const;  // of its elements
  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

struct TensorLayout {
  MeshAxes axes;
  std::vector<AxisPlacement> placements;  // one for each axis
  std::vector<std::int64_t> shape;        // of the whole tensor; empty: one number
  Dtype dtype = Dtype::f32;
  // The axes in the order in which they cut, where several shard one dimension; empty: as they stand.
  std::vector<int> nesting{};

  // invalid_argument says what contradicts what.
  Status check() const;
  // What the rank with these coordinates holds.
  TensorBox box(const Coordinates& coordinates) const;
  TensorBox box(int position) const { return box(coordinates_of(axes, position)); }

  friend bool operator==(const TensorLayout&, const TensorLayout&) = default;
};

// "(shard(0), replicate) of 1024x4096 bf16"; the nesting only where it is not the axes' own order.
std::string to_string(const TensorLayout& layout);

}  // namespace v1
}  // namespace tutti
