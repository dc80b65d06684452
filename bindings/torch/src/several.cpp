// all_reduce and broadcast of several tensors of one rank, as torch's own CPU backend takes them: each
// counts as a contribution of its own, and all get the result.
#include <ATen/ATen.h>

#include "backend.hpp"
#include "errors.hpp"
#include "reduction.hpp"

namespace tutti_torch {
namespace {

using c10d::OpType;

void check_alike(const char* operation, const Tensors& tensors) {
  check_tensor(operation, tensors[0]);
  check_same_type(operation, tensors[0], tensors);
  for (std::size_t i = 1; i < tensors.size(); ++i)
    if (tensors[i].sizes() != tensors[0].sizes())
      refuse(operation, "invalid tensor size at index " + std::to_string(i) + " (expected " +
                            shape_of(tensors[0]) + ", got " + shape_of(tensors[i]) + ")");
}

void fold(at::Tensor& result, const at::Tensor& other, tutti::ReduceOp op) {
  using tutti::ReduceOp;
  switch (op) {
    case ReduceOp::sum: result.add_(other); return;
    case ReduceOp::prod: result.mul_(other); return;
    case ReduceOp::min: result.copy_(at::minimum(result, other)); return;
    case ReduceOp::max: result.copy_(at::maximum(result, other)); return;
    case ReduceOp::band: result.bitwise_and_(other); return;
    case ReduceOp::bor: result.bitwise_or_(other); return;
    case ReduceOp::bxor: result.bitwise_xor_(other); return;
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
    case ReduceOp::user: break;
  }
  refuse("all_reduce", "of several tensors: ReduceOp." + std::string(tutti::to_string(op)) +
                           " takes a single-element tensor list");
}

tutti::Call call_of(tutti::Collective collective, const tutti::Buffer& buffer,
                    const tutti::ConstBuffer& input) {
  tutti::Call call;
  call.collective = collective;
  call.input = {&input, 1};
  call.output = {&buffer, 1};
  return call;
}

}  // namespace

WorkHandle Backend::all_reduce_several(Tensors& tensors, const c10d::AllreduceOptions& options) {
  static constexpr Title kTitle{OpType::ALLREDUCE, "tutti:all_reduce"};
  if (tensors.empty()) refuse(kTitle.name(), "requires non-empty tensor list");
  check_alike(kTitle.name(), tensors);
  const tutti::Reduction reduction = reduction_of(kTitle.name(), options.reduceOp, tensors[0]);
  at::NoGradGuard no_grad;
  at::Tensor folded = tensors[0].clone(at::MemoryFormat::Contiguous);
  for (std::size_t i = 1; i < tensors.size(); ++i) fold(folded, tensors[i], reduction.op);
  Loan loan;
  const tutti::Buffer buffer = lend(loan, folded, Use::in_place);
  const tutti::ConstBuffer input = buffer;
  for (const at::Tensor& tensor : tensors) loan.returns.emplace_back(tensor, folded);
  tutti::Call call = call_of(tutti::Collective::all_reduce, buffer, input);
  call.reduction = reduction;
  return launch(kTitle, call, options.timeout, std::move(loan), tensors);
}

WorkHandle Backend::broadcast_several(Tensors& tensors, const c10d::BroadcastOptions& options) {
  static constexpr Title kTitle{OpType::BROADCAST, "tutti:broadcast"};
  if (tensors.empty()) refuse(kTitle.name(), "requires non-empty tensor list");
  check_root(kTitle.name(), options.rootRank);
  if (options.rootTensor < 0 || options.rootTensor >= static_cast<int64_t>(tensors.size()))
    refuse(kTitle.name(), "invalid root tensor: " + std::to_string(options.rootTensor));
  check_alike(kTitle.name(), tensors);
  at::NoGradGuard no_grad;
  const at::Tensor copy =
      tensors[static_cast<std::size_t>(options.rootTensor)].clone(at::MemoryFormat::Contiguous);
  Loan loan;
  const bool is_root = options.rootRank == getRank();
  const tutti::Buffer buffer = lend(loan, copy, is_root ? Use::input : Use::output);
  const tutti::ConstBuffer input = buffer;
  for (const at::Tensor& tensor : tensors) loan.returns.emplace_back(tensor, copy);
  tutti::Call call = call_of(tutti::Collective::broadcast, buffer, input);
  call.root = static_cast<int>(options.rootRank);
  return launch(kTitle, call, options.timeout, std::move(loan), tensors);
}

}  // namespace tutti_torch
