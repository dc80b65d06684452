// all_reduce of sparse tensors, which DistributedDataParallel uses for embeddings with sparse
// gradients: everybody's indices and values are gathered, and each rank adds them up in rank order.
#include <ATen/ATen.h>

#include "backend.hpp"
#include "errors.hpp"
#include "streams.hpp"

namespace tutti_torch {
namespace {

constexpr const char* kName = "all_reduce";

void check_sparse(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  check_tensor(kName, tensor._values());
  if (op.op_ != c10d::ReduceOp::SUM)
    refuse(kName, "unsupported reduction operation (sparse tensors only work with ReduceOp.SUM)");
}

}  // namespace

WorkHandle Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  check_sparse(tensors[0], options.reduceOp);
  at::NoGradGuard no_grad;
  c10d::AllgatherOptions gathering;
  gathering.timeout = options.timeout;
  const at::Tensor own = tensors[0].coalesce();
  // The shape must be the same everywhere; the gathers of values cannot see that. On the CPU, for this
  // thread has to know.
  at::Tensor header = at::empty({1 + own.dim()}, at::kLong);
  header[0] = own._nnz();
  for (int64_t d = 0; d < own.dim(); ++d) header[1 + d] = own.size(d);
  at::Tensor headers = at::empty({getSize(), header.numel()}, at::kLong);
  _allgather_base(headers, header, gathering)->wait();
  Tensors indices, values;
  for (int rank = 0; rank < getSize(); ++rank) {
    if (!headers[rank].slice(0, 1).equal(header.slice(0, 1)))
      refuse(kName, "rank " + std::to_string(rank) + " has a sparse tensor of another shape than " +
                        shape_of(own));
    const int64_t count = headers[rank][0].item<int64_t>();
    indices.push_back(at::empty({own.sparse_dim(), count}, own._indices().options()));
    auto shape = own._values().sizes().vec();
    shape[0] = count;
    values.push_back(at::empty(shape, own._values().options()));
  }
  std::vector<Tensors> outputs{indices};
  Tensors inputs{own._indices().contiguous()};
  allgather(outputs, inputs, gathering)->wait();
  outputs = {values};
  inputs = {own._values().contiguous()};
  allgather(outputs, inputs, gathering)->wait();
  const at::Tensor sum =
      at::sparse_coo_tensor(at::cat(indices, 1), at::cat(values, 0), own.sizes()).coalesce();
  tensors[0].copy_(sum);
  Loan loan;
  if (own.is_cuda()) loan.stream = current_stream(own.device());
  return hand_out({c10d::OpType::ALLREDUCE, "tutti:all_reduce"}, Operations(), std::move(loan),
                  tensors);
}

}  // namespace tutti_torch
