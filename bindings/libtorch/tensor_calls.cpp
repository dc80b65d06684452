#include "tensor_calls.hpp"

#include "streams.hpp"

namespace tutti::libtorch {

namespace {

Dtype element_type(torch::ScalarType type) {
  switch (type) {
    case torch::kInt: return Dtype::i32;
    case torch::kLong: return Dtype::i64;
    case torch::kHalf: return Dtype::f16;
    case torch::kBFloat16: return Dtype::bf16;
    case torch::kFloat: return Dtype::f32;
    case torch::kDouble: return Dtype::f64;
    default:
      throw_invalid(std::string("a split layer works on float32, float64, bfloat16 or float16, "
                                "not on ") +
                    c10::toString(type));
  }
}

}  // namespace

Buffer lend(const torch::Tensor& tensor) {
  TORCH_INTERNAL_ASSERT(tensor.is_contiguous());
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
          element_type(tensor.scalar_type()),
          tensor.device().is_cuda() ? tutti::Device::cuda : tutti::Device::cpu};
}

CallOptions call_on(const torch::Tensor& tensor, const char* name) {
  CallOptions options;
  if (tensor.device().is_cuda()) options.stream = current_stream(tensor.device());
  options.name = name;
  return options;
}

}  // namespace tutti::libtorch
