// train/tensor_box.hpp - which elements of a tensor a box has, and where they lie in it.
//
// A tensor's elements are numbered in row-major order; a box in whatever shape of the tensor is a list of
// *runs* of such numbers, and so is a range of the box's own elements.
//
//   box of [4, 6]     . . . . . .      runs 8…10, 14…16;  range [2, 5) of the box: 10, 14…15
//                     . . x x x .
//                     . . x x x .
//                     . . . . . .
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/status.hpp"
#include "tutti/train/parameter.hpp"

namespace tutti::train {

std::size_t count_of(const std::vector<std::int64_t>& shape);
// "[4, 6]"
std::string to_text(const std::vector<std::int64_t>& shape);

// Of the tensor that this parameter is a part of.
const std::vector<std::int64_t>& whole_shape_of(const Parameter& parameter);
// In as few dimensions as it can be: equal boxes have equal shapes. A whole tensor has one.
TensorBox box_of(const Parameter& parameter);
TensorBox simplified(TensorBox box);
// Whether its numbers fit together; says what does not.
Status check_place(const Parameter& parameter);

// Elements of the tensor that lie one after another both there and in the box.
struct ElementRun {
  std::size_t tensor = 0;  // the first, in the tensor
  std::size_t box = 0;     // and from the beginning of the range
  std::size_t count = 0;
};
// Of elements [first, first + count) of the box, by their place in the box, which is also that in the
// tensor.
std::vector<ElementRun> runs_of(const TensorBox& box, std::size_t first, std::size_t count);

bool have_common_elements(const TensorBox& a, const TensorBox& b);

}  // namespace tutti::train
