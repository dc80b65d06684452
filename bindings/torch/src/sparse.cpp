// The sum of sparse tensors: every rank gets everybody's indices and values, and adds them up.
//
// Ranks hold different numbers of them, so sizes are exchanged first; the second step cannot be
// started before the first is done. The call therefore blocks, and its Work is done when it returns:
// in the background, the steps could not be kept in order with what the program starts next.
#include <ATen/ATen.h>

#include "backend.hpp"
#include "errors.hpp"

namespace tutti_torch {
namespace {

constexpr const char* kName = "all_reduce";

// Number of values, dimensions of the indices, then the shape.
at::Tensor header_of(const at::Tensor& tensor) {
  std::vector<int64_t> header{tensor._nnz(), tensor.sparse_dim()};
  header.insert(header.end(), tensor.sizes().begin(), tensor.sizes().end());
  return at::tensor(header, at::kLong);
}

void check_alike(const at::Tensor& own, const Tensors& headers) {
  for (std::size_t rank = 0; rank < headers.size(); ++rank)
    if (!headers[rank].slice(0, 1).equal(own.slice(0, 1)))
      refuse(kName, "rank " + std::to_string(rank) + " passed a sparse tensor of another shape");
}

}  // namespace

WorkHandle Backend::all_reduce_sparse(at::Tensor& tensor, const c10d::AllreduceOptions& options) {
  if (!tensor.device().is_cpu()) refuse(kName, "only supports CPU tensors");
  if (tensor.layout() != at::kSparse)
    unsupported(kName, "of sparse tensors, only the COO layout is supported");
  if (options.reduceOp.op_ != c10d::ReduceOp::SUM)
    refuse(kName, "unsupported reduction operation: sparse tensors can only be summed");
  c10d::AllgatherOptions gathering;
  gathering.timeout = options.timeout;
  const auto gather = [&](at::Tensor mine, Tensors outputs) {
    std::vector<Tensors> lists{std::move(outputs)};
    Tensors inputs{std::move(mine)};
    allgather(lists, inputs, gathering)->wait();
    return lists[0];
  };
  at::NoGradGuard no_grad;
  const at::Tensor input = tensor.coalesce();
  const at::Tensor header = header_of(input);
  Tensors headers, indices, values;
  for (std::size_t rank = 0; rank < ranks(); ++rank) headers.push_back(at::empty_like(header));
  headers = gather(header, headers);
  check_alike(header, headers);
  for (const at::Tensor& other : headers) {
    const int64_t count = other[0].item<int64_t>();
    std::vector<int64_t> shape = input.values().sizes().vec();
    shape[0] = count;
    indices.push_back(at::empty({input.sparse_dim(), count}, input.indices().options()));
    values.push_back(at::empty(shape, input.values().options()));
  }
  indices = gather(input.indices().contiguous(), indices);
  values = gather(input.values().contiguous(), values);
  const at::Tensor sum = at::sparse_coo_tensor(at::cat(indices, 1), at::cat(values, 0),
                                               tensor.sizes(), tensor.options());
  tensor.copy_(sum.coalesce());
  return hand_out({c10d::OpType::ALLREDUCE, "tutti:sparse_all_reduce"}, tutti::Work(), Loan(),
                  {tensor}, {tensor});
}

}  // namespace tutti_torch
