#include "row_blocks.hpp"

#include "tutti/exchange/sequence_cut.hpp"

namespace tutti::libtorch {

RowBlocks::RowBlocks(std::vector<std::int64_t> shape, std::int64_t dim, int ranks)
    : shape_(std::move(shape)), dim_(dim), ranks_(ranks) {
  std::int64_t before = 1, after = 1;
  for (std::int64_t d = 0; d + 1 < static_cast<std::int64_t>(shape_.size()); ++d) {
    const std::int64_t size = shape_[static_cast<std::size_t>(d)];
    if (d < dim) before *= size;
    if (d > dim) after *= size;
  }
  same_ = before == 1 || ranks == 1;
  const std::int64_t length = shape_[static_cast<std::size_t>(dim)];
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t rows = before * exchange::part_of(length, ranks, rank).count * after;
    rows_.push_back(static_cast<std::size_t>(rows));
    all_rows_ += rows;
  }
}

std::vector<std::int64_t> RowBlocks::part_shape(int rank) const {
  std::vector<std::int64_t> shape = shape_;
  std::int64_t& length = shape[static_cast<std::size_t>(dim_)];
  length = exchange::part_of(length, ranks_, rank).count;
  return shape;
}

torch::Tensor RowBlocks::by_rank(const torch::Tensor& whole) const {
  const std::int64_t width = whole.size(-1);
  if (same_) return whole.contiguous().view({all_rows_, width});
  std::vector<torch::Tensor> blocks;
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto part = exchange::part_of(whole.size(dim_), ranks_, rank);
    blocks.push_back(whole.narrow(dim_, part.first, part.count).reshape({-1, width}));
  }
  return torch::cat(blocks, 0);
}

torch::Tensor RowBlocks::natural(const torch::Tensor& rows) const {
  const std::int64_t width = rows.size(-1);
  if (same_) {
    auto shape = shape_;
    shape.back() = width;
    return rows.view(shape);
  }
  std::vector<torch::Tensor> parts;
  std::int64_t first = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    auto shape = part_shape(rank);
    shape.back() = width;
    const auto count = static_cast<std::int64_t>(rows_[static_cast<std::size_t>(rank)]);
    parts.push_back(rows.narrow(0, first, count).view(shape));
    first += count;
  }
  return torch::cat(parts, dim_);
}

}  // namespace tutti::libtorch
