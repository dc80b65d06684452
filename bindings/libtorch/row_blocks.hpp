// bindings/libtorch/row_blocks.hpp - a tensor that is cut along one dimension, as collectives have it: one
// contiguous block after the other, rank by rank.
//
//   [b, s, h] cut along s       natural   b0: r0 r1 | b1: r0 r1      rank by rank   r0: b0 b1 | r1: b0 b1
//
// Where nothing stands before that dimension the two are the same, and nothing is copied.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <vector>

namespace tutti::libtorch {

class RowBlocks {
 public:
  // `shape` of the whole, cut along `dim` by exchange::part_of.
  RowBlocks(std::vector<std::int64_t> shape, std::int64_t dim, int ranks);

  // Rows of a rank's block; a row is the last dimension.
  const std::vector<std::size_t>& rows() const { return rows_; }
  std::int64_t all_rows() const { return all_rows_; }
  // The shape of a rank's part.
  std::vector<std::int64_t> part_shape(int rank) const;

  // [all rows, width] out of a whole tensor of any width, and back.
  torch::Tensor by_rank(const torch::Tensor& whole) const;
  torch::Tensor natural(const torch::Tensor& rows) const;

 private:
  std::vector<std::int64_t> shape_;
  std::int64_t dim_;
  int ranks_;
  bool same_;  // in both orders
  std::vector<std::size_t> rows_;
  std::int64_t all_rows_ = 0;
};

}  // namespace tutti::libtorch
