// What ranks hold, worked out from lists of indices: the plain reference for boxes, steps and plans.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "tutti/tensor_layout.hpp"

namespace tutti::test {

using Indices = std::vector<std::int64_t>;

// As torch.chunk does it: lists of ⌈n / parts⌉, until there is nothing left.
inline Indices chunk(const Indices& list, int parts, int index) {
  const std::size_t longest =
      (list.size() + static_cast<std::size_t>(parts) - 1) / static_cast<std::size_t>(parts);
  Indices part;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (longest > 0 && i / longest == static_cast<std::size_t>(index)) part.push_back(list[i]);
  return part;
}

// The elements of a tensor that a rank holds, by their number in the whole, in order.
inline Indices held(const TensorLayout& layout, const Coordinates& at) {
  std::vector<int> order = layout.nesting;
  if (order.empty())
    for (int axis = 0; axis < static_cast<int>(layout.axes.size()); ++axis) order.push_back(axis);
  Indices elements{0};
  for (std::size_t dimension = 0; dimension < layout.shape.size(); ++dimension) {
    Indices rows(static_cast<std::size_t>(layout.shape[dimension]));
    std::iota(rows.begin(), rows.end(), 0);
    for (const int axis : order) {
      const auto index = static_cast<std::size_t>(axis);
      if (layout.placements[index] == shard(static_cast<int>(dimension)))
        rows = chunk(rows, layout.axes[index].size, at[index]);
    }
    Indices longer;
    for (const std::int64_t element : elements)
      for (const std::int64_t row : rows) longer.push_back(element * layout.shape[dimension] + row);
    elements = std::move(longer);
  }
  return elements;
}

// The elements of a box, likewise.
inline Indices elements_of(const TensorBox& box, const std::vector<std::int64_t>& shape) {
  Indices elements{0};
  for (std::size_t dimension = 0; dimension < shape.size(); ++dimension) {
    Indices longer;
    for (const std::int64_t element : elements)
      for (std::int64_t i = 0; i < box.shape[dimension]; ++i)
        longer.push_back(element * shape[dimension] + box.first[dimension] + i);
    elements = std::move(longer);
  }
  return elements;
}

}  // namespace tutti::test
