#include "torch_memory.hpp"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/torch.h>
#if __has_include(<c10/core/CachingDeviceAllocator.h>)
#include <c10/core/CachingDeviceAllocator.h>
#define PRETRAIN_COUNTS_MEMORY 1
#endif

#include <algorithm>

#include "device.hpp"

namespace pretrain {

namespace {

#if TORCH_VERSION_MAJOR >= 2
using Total = size_t;
#else
using Total = std::int64_t;
#endif

// torch tells profilers of every block that it takes or gives back.
class Counter final : public c10::MemoryReportingInfoBase {
 public:
  bool memoryProfilingEnabled() const override { return true; }
  void reportMemoryUsage(void*, std::int64_t bytes, Total, Total, c10::Device) override {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  void forget_peak() { peak_ = now_; }
  std::int64_t peak() const { return peak_; }

 private:
  std::int64_t now_ = 0, peak_ = 0;
};

#if defined(PRETRAIN_COUNTS_MEMORY)
c10::DeviceAllocator& allocator() { return *c10::getDeviceAllocator(c10::kCUDA); }
#endif

}  // namespace

struct TorchMemory::Counting {
  std::shared_ptr<Counter> counter = std::make_shared<Counter>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, counter};
};

TorchMemory::TorchMemory(const Flags& flags) : flags_(flags) {
  if (flags.device == kCpu) counting_ = std::make_unique<Counting>();
}

TorchMemory::~TorchMemory() = default;

void TorchMemory::forget_peak() {
  if (counting_) return counting_->counter->forget_peak();
#if defined(PRETRAIN_COUNTS_MEMORY)
  allocator().resetPeakStats(device_of(flags_).index());
#endif
}

std::optional<std::int64_t> TorchMemory::peak() const {
  if (counting_) return counting_->counter->peak();
#if defined(PRETRAIN_COUNTS_MEMORY)
  const auto stats = allocator().getDeviceStats(device_of(flags_).index());
  return stats.allocated_bytes[0].peak;  // of all kinds of blocks
#else
  return std::nullopt;
#endif
}

}  // namespace pretrain
