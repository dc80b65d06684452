// mesh/boxes.hpp - boxes of one tensor: what they share, and copying between memory that holds them.
#pragma once

#include <cstddef>

#include "tutti/tensor_layout.hpp"

namespace tutti::mesh {

// Zero elements where they have nothing in common.
TensorBox common(const TensorBox& a, const TensorBox& b);

// Where a part of a box lies in the box's memory, if it lies there in one stretch.
struct InOnePiece {
  bool is = false;
  std::int64_t offset = 0;  // elements from the beginning
};
InOnePiece lies_in(const TensorBox& part, const TensorBox& box);

// Memory that holds a box, row by row.
template <class Byte>
struct HeldBox {
  const TensorBox& box;
  Byte* data;
};
// Copies `part`, which lies in both.
void copy_part(const TensorBox& part, const HeldBox<const std::byte>& from,
               const HeldBox<std::byte>& to, std::size_t element_bytes);

}  // namespace tutti::mesh
