#include "rank_collectives.hpp"

#include "row_blocks.hpp"
#include "tensor_calls.hpp"

namespace tutti::libtorch {

namespace {

// Started and waited for: all of it is exposed.
void finish(TensorParallel& ranks, const torch::Tensor& tensor, Work work) {
  exchange::ExchangeMeter meter(lend(tensor).device, call_on(tensor, "").stream);
  const Status status = meter.wait(meter.follow(std::move(work)));
  ranks.add_times(meter.times());
  throw_failure(status);
}

std::vector<std::size_t> in_elements(const RowBlocks& blocks, std::int64_t width) {
  std::vector<std::size_t> counts = blocks.rows();
  for (std::size_t& count : counts) count *= static_cast<std::size_t>(width);
  return counts;
}

// Blocks are made of rows: a cut of the last dimension gets rows of one element.
struct InRows {
  InRows(const torch::Tensor& x, std::int64_t given_dim)
      : dim(given_dim < 0 ? given_dim + x.dim() : given_dim),
        widened(dim == x.dim() - 1),
        tensor(widened ? x.unsqueeze(-1) : x) {}
  torch::Tensor back(const torch::Tensor& y) const { return widened ? y.squeeze(-1) : y; }

  std::int64_t dim;
  bool widened;
  torch::Tensor tensor;
};

}  // namespace

std::vector<std::int64_t> whole_shape_of(const TensorParallel& ranks, const torch::Tensor& part,
                                         std::int64_t dim, std::int64_t length) {
  auto shape = part.sizes().vec();
  std::int64_t& own = shape[static_cast<std::size_t>(dim)];
  if (length == 0) length = own * ranks.size();
  if (exchange::part_of(length, ranks.size(), ranks.rank()).count != own)
    throw_invalid("rank " + std::to_string(ranks.rank()) + " of " + std::to_string(ranks.size()) +
                  " has " + std::to_string(own) + " of " + std::to_string(length) +
                  " indices of dimension " + std::to_string(dim) + "; its part is " +
                  std::to_string(exchange::part_of(length, ranks.size(), ranks.rank()).count));
  own = length;
  return shape;
}

torch::Tensor all_reduced(TensorParallel& ranks, const torch::Tensor& x, ReduceOp op) {
  if (ranks.size() == 1) return x;
  auto sum = x.clone(torch::MemoryFormat::Contiguous);
  finish(ranks, sum,
         ranks.group().all_reduce_async(lend(sum), op, call_on(sum, "tensor parallel")));
  return sum;
}

torch::Tensor all_gathered(TensorParallel& ranks, const torch::Tensor& x, std::int64_t dim,
                           std::int64_t length) {
  if (ranks.size() == 1) return x;
  const InRows in(x, dim);
  const auto part = in.tensor.contiguous();
  const std::int64_t width = part.size(-1);
  const RowBlocks blocks(whole_shape_of(ranks, part, in.dim, length), in.dim, ranks.size());
  auto rows = torch::empty({blocks.all_rows(), width}, part.options());
  const auto counts = in_elements(blocks, width);
  finish(ranks, rows,
         ranks.group().all_gather_v_async(lend(part), lend(rows), counts,
                                          call_on(rows, "tensor parallel")));
  return in.back(blocks.natural(rows));
}

torch::Tensor reduce_scattered(TensorParallel& ranks, const torch::Tensor& x, std::int64_t dim) {
  if (ranks.size() == 1) return x;
  const InRows in(x, dim);
  const std::int64_t width = in.tensor.size(-1);
  const RowBlocks blocks(in.tensor.sizes().vec(), in.dim, ranks.size());
  const auto rows = blocks.by_rank(in.tensor);
  auto part = torch::empty(blocks.part_shape(ranks.rank()), rows.options());
  const auto counts = in_elements(blocks, width);
  finish(ranks, part,
         ranks.group().reduce_scatter_v_async(lend(rows), counts, lend(part), ReduceOp::sum,
                                              call_on(rows, "tensor parallel")));
  return in.back(part);
}

torch::Tensor own_part(TensorParallel& ranks, const torch::Tensor& x, std::int64_t dim) {
  const auto part = exchange::part_of(x.size(dim), ranks.size(), ranks.rank());
  return x.narrow(dim, part.first, part.count).contiguous();
}

}  // namespace tutti::libtorch
