// Random tensors on random meshes, from a seed that repeats them.
#pragma once

#include <algorithm>
#include <random>

#include "tutti/tensor_layout.hpp"

namespace tutti::test {

class RandomLayouts {
 public:
  explicit RandomLayouts(std::uint64_t seed) : random_(seed) {}

  int draw(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }

  // Up to three axes and dimensions; lengths that do not divide, and none at all.
  TensorLayout tensor(int most_ranks) {
    TensorLayout made;
    do {
      made.axes.clear();
      const char* names[] = {"a", "b", "c"};
      const int axes = draw(1, 3);
      for (int axis = 0; axis < axes; ++axis) made.axes.push_back({names[axis], draw(1, 4)});
    } while (ranks_of(made.axes) > most_ranks);
    made.shape.resize(static_cast<std::size_t>(draw(0, 3)));
    for (std::int64_t& length : made.shape) length = draw(0, 20) == 0 ? 0 : draw(1, 9);
    made.dtype = draw(0, 1) == 0 ? Dtype::i64 : Dtype::i32;
    made.placements.assign(made.axes.size(), replicate());
    return made;
  }

  // The same tensor with placements of any kind, now and then cut in another order.
  TensorLayout placed(TensorLayout tensor, ReduceOp op, bool any_nesting = true) {
    const int dimensions = static_cast<int>(tensor.shape.size());
    for (AxisPlacement& placement : tensor.placements) {
      const int kind = draw(0, 9);
      placement = kind < 2                      ? replicate()
                  : kind < 4 || dimensions == 0 ? partial(op)
                                                : shard(draw(0, dimensions - 1));
    }
    if (any_nesting && draw(0, 4) == 0) {
      for (int axis = 0; axis < static_cast<int>(tensor.axes.size()); ++axis)
        tensor.nesting.push_back(axis);
      std::shuffle(tensor.nesting.begin(), tensor.nesting.end(), random_);
    }
    return tensor;
  }

  std::mt19937_64& random() { return random_; }

 private:
  std::mt19937_64 random_;
};

}  // namespace tutti::test
