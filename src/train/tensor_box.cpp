#include "train/tensor_box.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::train {
namespace {

std::size_t as_size(std::int64_t number) { return static_cast<std::size_t>(number); }

// Whether dimension `d` and the next can be one: then what is in both is one stretch of it.
bool can_merge(const TensorBox& box, std::size_t d) {
  return box.extent[d] == 1 || box.extent[d + 1] == box.whole[d + 1];
}

void merge(TensorBox& box, std::size_t d) {
  const std::int64_t width = box.whole[d + 1];
  box.first[d] = box.first[d] * width + box.first[d + 1];
  box.extent[d] = box.extent[d] == 1 ? box.extent[d + 1] : box.extent[d] * width;
  box.whole[d] *= width;
  for (auto* numbers : {&box.whole, &box.first, &box.extent})
    numbers->erase(numbers->begin() + static_cast<std::ptrdiff_t>(d) + 1);
}

bool ranges_meet(std::int64_t a, std::int64_t a_count, std::int64_t b, std::int64_t b_count) {
  return a < b + b_count && b < a + a_count;
}

bool runs_meet(const std::vector<ElementRun>& a, const std::vector<ElementRun>& b) {
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].tensor < b[j].tensor + b[j].count && b[j].tensor < a[i].tensor + a[i].count)
      return true;
    if (a[i].tensor < b[j].tensor)
      ++i;
    else
      ++j;
  }
  return false;
}

}  // namespace

std::size_t count_of(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= as_size(extent);
  return count;
}

std::string to_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

const std::vector<std::int64_t>& whole_shape_of(const Parameter& parameter) {
  const auto& whole = parameter.place.whole_shape;
  return whole.empty() ? parameter.shape : whole;
}

TensorBox simplified(TensorBox box) {
  for (std::size_t d = 0; d + 1 < box.whole.size();)
    if (can_merge(box, d)) {
      merge(box, d);
      d -= d > 0 ? 1 : 0;  // the one before may have become as simple
    } else {
      ++d;
    }
  return box;
}

TensorBox box_of(const Parameter& parameter) {
  if (!parameter.place.box.whole.empty()) return simplified(parameter.place.box);
  const auto count = static_cast<std::int64_t>(parameter.count());
  return {{count}, {0}, {count}};
}

Status check_place(const Parameter& parameter) {
  const TensorBox& box = parameter.place.box;
  const auto wrong = [&](const std::string& what) {
    return Status(Code::invalid_argument, fmt::format("parameter {}: {}", parameter.name, what));
  };
  if (box.first.size() != box.whole.size() || box.extent.size() != box.whole.size())
    return wrong(fmt::format("its box has {}, {} and {} numbers for whole, first and extent",
                             box.whole.size(), box.first.size(), box.extent.size()));
  for (std::size_t d = 0; d < box.whole.size(); ++d)
    if (box.first[d] < 0 || box.extent[d] < 0 || box.first[d] + box.extent[d] > box.whole[d])
      return wrong(fmt::format("its box, {} from {} on, does not lie in {}", to_text(box.extent),
                               to_text(box.first), to_text(box.whole)));
  const std::size_t here =
      box.whole.empty() ? count_of(whole_shape_of(parameter)) : count_of(box.extent);
  if (here != parameter.count())
    return wrong(fmt::format("it has {} elements, and its {} {}", parameter.count(),
                             box.whole.empty() ? "whole shape" : "box", here));
  if (!box.whole.empty() && count_of(box.whole) != count_of(whole_shape_of(parameter)))
    return wrong(fmt::format("its box is in {}, which has not as many elements as the tensor's {}",
                             to_text(box.whole), to_text(whole_shape_of(parameter))));
  return {};
}

std::vector<ElementRun> runs_of(const TensorBox& box, std::size_t first, std::size_t count) {
  std::vector<ElementRun> runs;
  if (count == 0) return runs;
  const std::size_t last = box.whole.size() - 1;
  const std::size_t width = as_size(box.extent[last]);
  for (std::size_t at = first; at < first + count;) {
    // The numbers of the row that the element is in, from the last dimension but one up.
    const std::size_t column = at % width;
    std::size_t row = at / width, place = 0, stride = as_size(box.whole[last]);
    for (std::size_t d = last; d-- > 0;) {
      place += (as_size(box.first[d]) + row % as_size(box.extent[d])) * stride;
      row /= as_size(box.extent[d]);
      stride *= as_size(box.whole[d]);
    }
    const std::size_t some = std::min(width - column, first + count - at);
    runs.push_back({place + as_size(box.first[last]) + column, at - first, some});
    at += some;
  }
  return runs;
}

bool have_common_elements(const TensorBox& a, const TensorBox& b) {
  if (count_of(a.extent) == 0 || count_of(b.extent) == 0) return false;
  if (a.whole != b.whole)
    return runs_meet(runs_of(a, 0, count_of(a.extent)), runs_of(b, 0, count_of(b.extent)));
  for (std::size_t d = 0; d < a.whole.size(); ++d)
    if (!ranges_meet(a.first[d], a.extent[d], b.first[d], b.extent[d])) return false;
  return true;
}

}  // namespace tutti::train
