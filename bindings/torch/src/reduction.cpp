#include "reduction.hpp"

#include <ATen/ATen.h>

#include "errors.hpp"
#include "tensors.hpp"

namespace tutti_torch {
namespace {

using tutti::ReduceOp;

double single_factor(const char* operation, const at::Tensor& factor) {
  if (factor.numel() != 1) refuse(operation, "PREMUL_SUM takes a factor of one element");
  return factor.item<double>();
}

double premul_factor(const char* operation, const c10d::ReduceOp& op) {
  const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (supplement == nullptr) refuse(operation, "PREMUL_SUM without a factor");
#if TUTTI_TORCH_AT_LEAST(2, 0)
  if (supplement->tensor_factor.defined())
    return single_factor(operation, supplement->tensor_factor);
#else
  if (!supplement->tensor_factors.empty())
    return single_factor(operation, supplement->tensor_factors.front());
#endif
  return supplement->double_factor;
}

tutti::Reduction translate(const char* operation, const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return ReduceOp::sum;
    case c10d::ReduceOp::AVG: return ReduceOp::avg;
    case c10d::ReduceOp::PRODUCT: return ReduceOp::prod;
    case c10d::ReduceOp::MIN: return ReduceOp::min;
    case c10d::ReduceOp::MAX: return ReduceOp::max;
    case c10d::ReduceOp::BAND: return ReduceOp::band;
    case c10d::ReduceOp::BOR: return ReduceOp::bor;
    case c10d::ReduceOp::BXOR: return ReduceOp::bxor;
    case c10d::ReduceOp::PREMUL_SUM:
      return tutti::Reduction::premul_sum(premul_factor(operation, op));
    default: refuse(operation, "unknown ReduceOp " + std::to_string(static_cast<int>(op.op_)));
  }
}

}  // namespace

tutti::Reduction reduction_of(const char* operation, const c10d::ReduceOp& op,
                              const at::Tensor& tensor) {
  const tutti::Reduction reduction = translate(operation, op);
  const at::ScalarType type = tensor.scalar_type();
  const bool adds = reduction.op == ReduceOp::sum || reduction.op == ReduceOp::avg ||
                    reduction.op == ReduceOp::premul_sum;
  // A complex number goes as a pair of reals: right for what adds, wrong for everything else.
  if (!is_arithmetic(type) || (c10::isComplexType(type) && !adds) ||
      !tutti::is_sensible(reduction.op, elements_of(tensor).dtype))
    refuse(operation, "cannot use ReduceOp." + std::string(tutti::to_string(reduction.op)) +
                          " with tensors of " + c10::toString(type));
  return reduction;
}

}  // namespace tutti_torch
