// Tensors in memory that every rank of the host has mapped: collectives on them copy nothing.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "backend.hpp"
#include "errors.hpp"

namespace tutti_torch {

at::Tensor Backend::allocate(std::size_t bytes, c10::Device device) {
  const c10::OptionalDeviceGuard current(device);  // where a rank's first memory on a GPU goes
  const tutti::SymmetricMemory memory = levels_.with_group(0, [&](tutti::Group& group) {
    const auto kind = device.is_cuda() ? tutti::Device::cuda : tutti::Device::cpu;
    return take(group.allocate(std::max<std::size_t>(bytes, 1), kind));
  });
  // Without an index: torch finds out on which GPU it lies.
  const auto options = at::TensorOptions().dtype(at::kByte).device(device.type());
  at::Tensor tensor = at::from_blob(
      memory.data, {static_cast<int64_t>(bytes)}, [owner = memory.owner](void*) {}, options);
  if (device.has_index() && device.is_cuda() && tensor.device() != device)
    refuse("empty", "this rank works on " + tensor.device().str() + " and gets no memory on " +
                        device.str());
  return tensor;
}

}  // namespace tutti_torch
