#include "tensors.hpp"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include "compat.hpp"
#include "errors.hpp"

namespace tutti_torch {
namespace {

bool in_order(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

}  // namespace

Elements elements_of(const at::Tensor& tensor) {
  using tutti::Dtype;
  switch (tensor.scalar_type()) {
    case at::kByte: return {Dtype::u8, 1};
    case at::kChar: return {Dtype::i8, 1};
    case at::kShort: return {Dtype::i16, 1};
    case at::kInt: return {Dtype::i32, 1};
    case at::kLong: return {Dtype::i64, 1};
    case at::kHalf: return {Dtype::f16, 1};
    case at::kBFloat16: return {Dtype::bf16, 1};
    case at::kFloat: return {Dtype::f32, 1};
    case at::kDouble: return {Dtype::f64, 1};
    case at::kBool: return {Dtype::boolean, 1};
    case at::kComplexHalf: return {Dtype::f16, 2};
    case at::kComplexFloat: return {Dtype::f32, 2};
    case at::kComplexDouble: return {Dtype::f64, 2};
#if TUTTI_TORCH_AT_LEAST(2, 1)
    case at::ScalarType::Float8_e4m3fn: return {Dtype::f8e4m3, 1};
    case at::ScalarType::Float8_e5m2: return {Dtype::f8e5m2, 1};
#endif
#if TUTTI_TORCH_AT_LEAST(2, 3)
    case at::ScalarType::UInt16: return {Dtype::u16, 1};
    case at::ScalarType::UInt32: return {Dtype::u32, 1};
    case at::ScalarType::UInt64: return {Dtype::u64, 1};
#endif
    default: return {Dtype::u8, static_cast<std::size_t>(tensor.element_size())};
  }
}

bool is_arithmetic(at::ScalarType type) {
  switch (type) {
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
    case at::kBool:
    case at::kComplexHalf:
    case at::kComplexFloat:
    case at::kComplexDouble:
#if TUTTI_TORCH_AT_LEAST(2, 1)
    case at::ScalarType::Float8_e4m3fn:
    case at::ScalarType::Float8_e5m2:
#endif
#if TUTTI_TORCH_AT_LEAST(2, 3)
    case at::ScalarType::UInt16:
    case at::ScalarType::UInt32:
    case at::ScalarType::UInt64:
#endif
      return true;
    default: return false;
  }
}

void Loan::give_back() {
  if (returns.empty()) return;
  at::NoGradGuard no_grad;
  for (auto& [destination, source] : returns) destination.copy_(source);
  returns.clear();
}

tutti::Buffer lend(Loan& loan, const at::Tensor& tensor, Use use) {
  const auto [dtype, per_element] = elements_of(tensor);
  const std::size_t count = static_cast<std::size_t>(tensor.numel()) * per_element;
  if (use != Use::output && at::hasCallbacks()) loan.profiled.push_back(tensor);
  if (in_order(tensor)) {
    loan.held.push_back(tensor);
    return {tensor.data_ptr(), count, dtype};
  }
  at::NoGradGuard no_grad;
  at::Tensor staged = at::empty(tensor.sizes(), tensor.options(), at::MemoryFormat::Contiguous);
  if (use != Use::output) staged.copy_(tensor);
  if (use != Use::input) loan.returns.emplace_back(tensor, staged);
  loan.held.push_back(staged);
  return {staged.data_ptr(), count, dtype};
}

void check_tensor(const char* operation, const at::Tensor& tensor) {
  if (!tensor.defined()) refuse(operation, "got an undefined tensor");
  if (!tensor.device().is_cpu())
    refuse(operation, "only supports CPU tensors, got one on " + tensor.device().str());
  if (tensor.layout() != at::kStrided)
    refuse(operation, "only supports dense tensors, got a sparse one");
  if (tensor.is_quantized())
    unsupported(operation, "does not support quantized tensors; send int_repr() of it");
}

const at::Tensor& check_single(const char* operation, const Tensors& tensors, const char* side) {
  if (tensors.size() != 1)
    refuse(operation, std::string("requires a single-element ") + side +
                          "tensor list, got one of " + std::to_string(tensors.size()));
  check_tensor(operation, tensors[0]);
  return tensors[0];
}

void check_same_type(const char* operation, const at::Tensor& expected, const Tensors& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check_tensor(operation, tensors[i]);
    if (tensors[i].scalar_type() != expected.scalar_type())
      refuse(operation, "invalid tensor type at index " + std::to_string(i) + " (expected " +
                            c10::toString(expected.scalar_type()) + ", got " +
                            c10::toString(tensors[i].scalar_type()) + ")");
  }
}

std::string shape_of(const at::Tensor& tensor) {
  std::string text = "(";
  for (int64_t d = 0; d < tensor.dim(); ++d)
    text += (d != 0 ? ", " : "") + std::to_string(tensor.size(d));
  return text + ")";
}

}  // namespace tutti_torch
