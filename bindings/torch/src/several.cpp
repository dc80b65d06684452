// Several tensors per rank in one call: what torch's older interface means by a list. They count as
// the tensors of as many ranks: all are folded, or gathered, and each gets the result.
#include <ATen/ATen.h>

#include "backend.hpp"
#include "errors.hpp"
#include "reduction.hpp"

namespace tutti_torch {
namespace {

using c10d::OpType;
using tutti::Collective;

void check_alike(const char* operation, const Tensors& tensors) {
  check_same_type(operation, tensors[0], tensors);
  for (std::size_t i = 1; i < tensors.size(); ++i)
    if (tensors[i].sizes() != tensors[0].sizes())
      refuse(operation, "invalid tensor size at index " + std::to_string(i) + " (expected " +
                            shape_of(tensors[0]) + ", got " + shape_of(tensors[i]) + ")");
}

// One tensor in memory of its own: the fold of all.
at::Tensor folded(const char* operation, const Tensors& tensors, const c10d::ReduceOp& op) {
  at::NoGradGuard no_grad;
  at::Tensor result = tensors[0].clone(at::MemoryFormat::Contiguous);
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (op.op_ == c10d::ReduceOp::SUM)
      result.add_(tensors[i]);
    else if (op.op_ == c10d::ReduceOp::PRODUCT)
      result.mul_(tensors[i]);
    else if (op.op_ == c10d::ReduceOp::MIN)
      result.copy_(at::minimum(result, tensors[i]));
    else if (op.op_ == c10d::ReduceOp::MAX)
      result.copy_(at::maximum(result, tensors[i]));
    else if (op.op_ == c10d::ReduceOp::BAND)
      result.bitwise_and_(tensors[i]);
    else if (op.op_ == c10d::ReduceOp::BOR)
      result.bitwise_or_(tensors[i]);
    else if (op.op_ == c10d::ReduceOp::BXOR)
      result.bitwise_xor_(tensors[i]);
    else
      unsupported(operation, "of several tensors per rank does not know this reduction");
  }
  return result;
}

}  // namespace

WorkHandle Backend::allreduce_several(Tensors& tensors, const c10d::AllreduceOptions& options) {
  static constexpr Title kTitle{OpType::ALLREDUCE, "tutti:all_reduce"};
  if (tensors.empty()) refuse(kTitle.name(), "requires non-empty tensor list");
  check_alike(kTitle.name(), tensors);
  const at::Tensor all = folded(kTitle.name(), tensors, options.reduceOp);
  tutti::Call call;
  call.collective = Collective::all_reduce;
  call.reduction = reduction_of(kTitle.name(), options.reduceOp, all);
  Loan loan;
  const tutti::Buffer buffer = lend(loan, all, Use::in_place);
  const tutti::ConstBuffer input = buffer;
  call.input = {&input, 1};
  call.output = {&buffer, 1};
  for (const at::Tensor& tensor : tensors) loan.returns.emplace_back(tensor, all);
  return launch(kTitle, call, options, std::move(loan), tensors);
}

WorkHandle Backend::broadcast_several(Tensors& tensors, const c10d::BroadcastOptions& options) {
  static constexpr Title kTitle{OpType::BROADCAST, "tutti:broadcast"};
  check_root(kTitle.name(), options.rootRank);
  check_alike(kTitle.name(), tensors);
  at::NoGradGuard no_grad;
  const at::Tensor sent =
      tensors[static_cast<std::size_t>(options.rootTensor)].clone(at::MemoryFormat::Contiguous);
  tutti::Call call;
  call.collective = Collective::broadcast;
  call.root = static_cast<int>(options.rootRank);
  Loan loan;
  const tutti::Buffer buffer = lend(loan, sent, Use::input);
  const tutti::ConstBuffer input = buffer;
  call.input = {&input, 1};
  call.output = {&buffer, 1};
  for (const at::Tensor& tensor : tensors) loan.returns.emplace_back(tensor, sent);
  return launch(kTitle, call, options, std::move(loan), tensors);
}

// Of k inputs per rank, outputs[j][r * k + i] is input i of rank r, for every j.
WorkHandle Backend::allgather_several(std::vector<Tensors>& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& options) {
  static constexpr Title kTitle{OpType::ALLGATHER, "tutti:all_gather"};
  check_alike(kTitle.name(), inputs);
  const std::size_t count = inputs.size();
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    if (outputs[j].size() != count * ranks())
      refuse(kTitle.name(), "invalid output tensor list at index " + std::to_string(j) +
                                " (expected length " + std::to_string(count * ranks()) + ", got " +
                                std::to_string(outputs[j].size()) + ")");
    Tensors alike = outputs[j];
    alike.insert(alike.begin(), inputs[0]);
    check_alike(kTitle.name(), alike);
  }
  at::NoGradGuard no_grad;
  const at::Tensor own = at::stack(inputs);
  auto shape = own.sizes().vec();
  shape.insert(shape.begin(), getSize());
  const at::Tensor whole = at::empty(shape, own.options());
  Loan loan;
  tutti::Work operation = start_gather(kTitle, own, whole, options, loan);
  Tensors all;
  for (Tensors& list : outputs)
    for (std::size_t k = 0; k < list.size(); ++k) {
      loan.returns.emplace_back(
          list[k], whole[static_cast<int64_t>(k / count)][static_cast<int64_t>(k % count)]);
      all.push_back(list[k]);
    }
  return hand_out(kTitle, std::move(operation), std::move(loan), std::move(all));
}

}  // namespace tutti_torch
