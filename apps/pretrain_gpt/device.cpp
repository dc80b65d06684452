#include "device.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/torch.h>
#if __has_include(<c10/core/CachingDeviceAllocator.h>)
#include <c10/core/CachingDeviceAllocator.h>
#define PRETRAIN_COUNTS_MEMORY 1
#endif

#include <cstdlib>

namespace pretrain {

namespace {

int local_rank() {
  for (const char* name : {"TUTTI_LOCAL_RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"})
    if (const char* text = std::getenv(name)) return std::max(std::atoi(text), 0);
  return 0;
}

bool is_cuda(const Flags& flags) { return flags.device == kCuda; }

#if defined(PRETRAIN_COUNTS_MEMORY)
c10::DeviceAllocator& allocator() { return *c10::getDeviceAllocator(c10::kCUDA); }
#endif

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

void reset_peak_memory(const Flags& flags) {
#if defined(PRETRAIN_COUNTS_MEMORY)
  if (is_cuda(flags)) allocator().resetPeakStats(device_of(flags).index());
#else
  (void)flags;
#endif
}

std::optional<std::int64_t> peak_memory(const Flags& flags) {
#if defined(PRETRAIN_COUNTS_MEMORY)
  if (!is_cuda(flags)) return std::nullopt;
  const auto stats = allocator().getDeviceStats(device_of(flags).index());
  return stats.allocated_bytes[0].peak;  // of all kinds of blocks
#else
  (void)flags;
  return std::nullopt;
#endif
}

}  // namespace pretrain
