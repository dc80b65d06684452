#include "device.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

namespace pretrain {

namespace {

// As the launcher says it.
int local_number(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* text = std::getenv(name)) return std::max(std::atoi(text), 0);
  return 0;
}

int local_rank() {
  return local_number({"TUTTI_LOCAL_RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"});
}

bool is_cuda(const Flags& flags) { return flags.device == kCuda; }

}  // namespace

tutti::Status choose_device(const Flags& flags) {
  if (!is_cuda(flags)) return {};
  // Before cuBLAS is there: with it, and by algorithms without atomics, every run gives the same bits.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  if (!torch::cuda::is_available()) {
    return {tutti::Code::invalid_argument,
            fmt::format("--device cuda: torch {} was built without CUDA, or finds no GPU",
                        TORCH_VERSION)};
  }
  const auto count = static_cast<int>(torch::cuda::device_count());
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank() % count));
  c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(device);
  return {};
}

c10::Device device_of(const Flags& flags) {
  if (!is_cuda(flags)) return c10::Device(c10::kCPU);
  return c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice();
}

int ranks_on_device(const Flags& flags) {
  if (!is_cuda(flags)) return 1;
  const auto count = static_cast<int>(torch::cuda::device_count());
  const int ranks = std::max(
      local_number({"TUTTI_LOCAL_SIZE", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}), 1);
  const int first = local_rank() % count;  // then every so many
  return std::max((ranks - first + count - 1) / count, 1);
}

}  // namespace pretrain
