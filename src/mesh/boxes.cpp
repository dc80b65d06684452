#include "mesh/boxes.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::mesh {
namespace {

std::int64_t offset_of(const TensorBox& part, const TensorBox& box) {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < box.shape.size(); ++i)
    offset = offset * box.shape[i] + part.first[i] - box.first[i];
  return offset;
}

// Rows of the last dimensions that are whole on both sides lie together: from here on they are one run.
std::size_t first_of_run(const TensorBox& part, const TensorBox& a, const TensorBox& b) {
  std::size_t first = part.shape.size();
  while (first > 0) {
    --first;
    if (part.shape[first] != a.shape[first] || part.shape[first] != b.shape[first]) break;
  }
  return first;
}

}  // namespace

TensorBox common(const TensorBox& a, const TensorBox& b) {
  TensorBox both;
  for (std::size_t i = 0; i < a.shape.size(); ++i) {
    const std::int64_t first = std::max(a.first[i], b.first[i]);
    const std::int64_t end = std::min(a.first[i] + a.shape[i], b.first[i] + b.shape[i]);
    both.first.push_back(first);
    both.shape.push_back(std::max<std::int64_t>(0, end - first));
  }
  return both;
}

// In one stretch: one element of each outer dimension, any number of one, all of the inner ones.
InOnePiece lies_in(const TensorBox& part, const TensorBox& box) {
  if (part.count() == 0) return {true, 0};
  const std::size_t run = first_of_run(part, box, box);
  for (std::size_t i = 0; i < run; ++i)
    if (part.shape[i] != 1) return {};
  return {true, offset_of(part, box)};
}

void copy_part(const TensorBox& part, const HeldBox<const std::byte>& from,
               const HeldBox<std::byte>& to, std::size_t element_bytes) {
  if (part.count() == 0) return;
  const std::size_t run = first_of_run(part, from.box, to.box);
  std::int64_t run_count = 1;
  for (std::size_t i = run; i < part.shape.size(); ++i) run_count *= part.shape[i];
  const std::size_t bytes = static_cast<std::size_t>(run_count) * element_bytes;
  // Of one outer dimension: the distance from an element to the next, here and there.
  std::vector<std::int64_t> from_step(run), to_step(run), index(run, 0);
  for (std::size_t i = 0; i < run; ++i) {
    from_step[i] = to_step[i] = 1;
    for (std::size_t inner = i + 1; inner < part.shape.size(); ++inner) {
      from_step[i] *= from.box.shape[inner];
      to_step[i] *= to.box.shape[inner];
    }
  }
  std::int64_t source = offset_of(part, from.box);
  std::int64_t target = offset_of(part, to.box);
  for (;;) {
    std::memcpy(to.data + static_cast<std::size_t>(target) * element_bytes,
                from.data + static_cast<std::size_t>(source) * element_bytes, bytes);
    std::size_t dimension = run;
    while (dimension > 0) {
      --dimension;
      source += from_step[dimension];
      target += to_step[dimension];
      if (++index[dimension] < part.shape[dimension]) break;
      source -= from_step[dimension] * part.shape[dimension];
      target -= to_step[dimension] * part.shape[dimension];
      index[dimension] = 0;
      if (dimension == 0) return;
    }
    if (run == 0) return;
  }
}

}  // namespace tutti::mesh
