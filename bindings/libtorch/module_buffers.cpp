#include "module_buffers.hpp"

#include <optional>

#include "streams.hpp"

namespace tutti::libtorch {

namespace {

std::optional<Dtype> dtype_of(torch::ScalarType type) {
  switch (type) {
    case torch::kBool: return Dtype::boolean;
    case torch::kByte: return Dtype::u8;
    case torch::kChar: return Dtype::i8;
    case torch::kShort: return Dtype::i16;
    case torch::kInt: return Dtype::i32;
    case torch::kLong: return Dtype::i64;
    case torch::kHalf: return Dtype::f16;
    case torch::kBFloat16: return Dtype::bf16;
    case torch::kFloat: return Dtype::f32;
    case torch::kDouble: return Dtype::f64;
    default: return {};
  }
}

}  // namespace

std::vector<train::ModuleBuffer> module_buffers(const torch::nn::Module& module) {
  torch::NoGradGuard no_grad;
  std::vector<train::ModuleBuffer> list;
  for (const auto& item : module.named_buffers()) {
    torch::Tensor tensor = item.value();
    if (!tensor.is_contiguous()) tensor.set_data(tensor.contiguous());
    const std::size_t bytes = tensor.nbytes();
    const auto device = tensor.device().is_cuda() ? tutti::Device::cuda : tutti::Device::cpu;
    train::ModuleBuffer buffer{item.key(),
                               {static_cast<std::int64_t>(bytes)},
                               {tensor.data_ptr(), bytes, Dtype::u8, device}};
    if (const auto dtype = dtype_of(tensor.scalar_type())) {
      buffer.shape = tensor.sizes().vec();
      buffer.value = {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), *dtype, device};
    }
    list.push_back(std::move(buffer));
  }
  return list;
}

Status broadcast_buffers(const torch::nn::Module& module, Group& group) {
  const auto tensors = module.named_buffers();
  std::size_t index = 0;
  for (const train::ModuleBuffer& buffer : module_buffers(module)) {
    const torch::Device device = tensors[index++].value().device();
    CallOptions call;
    if (device.is_cuda()) call.stream = current_stream(device);
    auto status = group.broadcast(buffer.value, 0, call);
    if (!status.ok()) return status.annotate("module buffer '" + buffer.name + "'");
  }
  return {};
}

}  // namespace tutti::libtorch
