#include "tensors.hpp"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include "errors.hpp"
#include "streams.hpp"

namespace tutti_torch {
namespace {

bool in_order(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

struct Known {
  at::ScalarType type;
  tutti::Dtype dtype;
  std::size_t per_element = 1;  // 2: complex
};

// What tutti can fold. Anything else travels as bytes.
constexpr Known kKnown[] = {
    {at::kByte, tutti::Dtype::u8},
    {at::kChar, tutti::Dtype::i8},
    {at::kShort, tutti::Dtype::i16},
    {at::kInt, tutti::Dtype::i32},
    {at::kLong, tutti::Dtype::i64},
    {at::kHalf, tutti::Dtype::f16},
    {at::kBFloat16, tutti::Dtype::bf16},
    {at::kFloat, tutti::Dtype::f32},
    {at::kDouble, tutti::Dtype::f64},
    {at::kBool, tutti::Dtype::boolean},
    {at::kComplexHalf, tutti::Dtype::f16, 2},
    {at::kComplexFloat, tutti::Dtype::f32, 2},
    {at::kComplexDouble, tutti::Dtype::f64, 2},
#if TUTTI_TORCH_AT_LEAST(2, 1)
    {at::ScalarType::Float8_e4m3fn, tutti::Dtype::f8e4m3},
    {at::ScalarType::Float8_e5m2, tutti::Dtype::f8e5m2},
#endif
#if TUTTI_TORCH_AT_LEAST(2, 3)
    {at::ScalarType::UInt16, tutti::Dtype::u16},
    {at::ScalarType::UInt32, tutti::Dtype::u32},
    {at::ScalarType::UInt64, tutti::Dtype::u64},
#endif
};

const Known* find(at::ScalarType type) {
  for (const Known& known : kKnown)
    if (known.type == type) return &known;
  return nullptr;
}

}  // namespace

Elements elements_of(const at::Tensor& tensor) {
  if (const Known* known = find(tensor.scalar_type())) return {known->dtype, known->per_element};
  return {tutti::Dtype::u8, static_cast<std::size_t>(tensor.element_size())};
}

bool is_arithmetic(at::ScalarType type) { return find(type) != nullptr; }

at::ScalarType scalar_type_of(tutti::Dtype dtype) {
  for (const Known& known : kKnown)
    if (known.dtype == dtype && known.per_element == 1) return known.type;
  unsupported("hand_over",
              "this torch has no tensors of type " + std::string(tutti::to_string(dtype)));
}

void Loan::give_back() {
  if (returns.empty()) return;
  at::NoGradGuard no_grad;
  for (auto& [destination, source] : returns) destination.copy_(source);
  returns.clear();
}

MaybeTensors profiled_tensors(const char* title, const Loan& loan, const Tensors& outputs) {
  if (title == nullptr) return {};
  return loan.profiled.empty() ? outputs : loan.profiled;
}

tutti::Buffer lend(Loan& loan, const at::Tensor& tensor, Use use) {
  const auto device = tensor.is_cuda() ? tutti::Device::cuda : tutti::Device::cpu;
  if (tensor.is_cuda() && !loan.stream) loan.stream = current_stream(tensor.device());
  const auto [dtype, per_element] = elements_of(tensor);
  const std::size_t count = static_cast<std::size_t>(tensor.numel()) * per_element;
  if (use != Use::output && at::hasCallbacks()) loan.profiled.push_back(tensor);
  if (in_order(tensor)) {
    loan.held.push_back(tensor);
    return {tensor.data_ptr(), count, dtype, device};
  }
  at::NoGradGuard no_grad;
  at::Tensor staged = at::empty(tensor.sizes(), tensor.options(), at::MemoryFormat::Contiguous);
  if (use != Use::output) staged.copy_(tensor);
  if (use != Use::input) loan.returns.emplace_back(tensor, staged);
  loan.held.push_back(staged);
  return {staged.data_ptr(), count, dtype, device};
}

void check_tensor(const char* operation, const at::Tensor& tensor) {
  if (!tensor.defined()) refuse(operation, "got an undefined tensor");
  if (!tensor.device().is_cpu() && !tensor.is_cuda())
    refuse(operation, "only supports CPU and CUDA tensors, got one on " + tensor.device().str());
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
