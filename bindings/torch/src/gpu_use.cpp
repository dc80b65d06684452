#include "gpu_use.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

#include "compat.hpp"

#if TUTTI_TORCH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace tutti_torch {
namespace {

// Never destroyed: the allocator may call when main is over.
struct GpuUse {
  std::mutex mutex;
  std::vector<tutti::Group*> groups;
  std::optional<c10::Device> gpu;
  std::once_flag watched;
};

GpuUse& gpu_use() {
  static GpuUse* const use = new GpuUse;
  return *use;
}

}  // namespace

void note_use(tutti::Group& group, c10::Device gpu) {
  GpuUse& use = gpu_use();
  std::call_once(use.watched, watch_allocator);
  std::scoped_lock lock(use.mutex);
  use.gpu = gpu;
  if (std::find(use.groups.begin(), use.groups.end(), &group) == use.groups.end())
    use.groups.push_back(&group);
}

void note_end(const tutti::Group& group) {
  std::scoped_lock lock(gpu_use().mutex);
  std::erase(gpu_use().groups, &group);
}

// With the lock: a group that is told of it cannot go meanwhile.
void note_freed(const void* allocation) {
  std::scoped_lock lock(gpu_use().mutex);
  for (tutti::Group* group : gpu_use().groups) group->forget(allocation);
}

std::optional<c10::Device> gpu_in_use() {
  std::scoped_lock lock(gpu_use().mutex);
  return gpu_use().gpu;
}

void watch_allocator() {
#if TUTTI_TORCH_CUDA
  namespace allocator = c10::cuda::CUDACachingAllocator;
  // Others have no such hook and refuse it: cudaMallocAsync, for one, whose memory nobody maps.
  if (allocator::name() != "native") return;
  allocator::attachAllocatorTraceTracker([](const allocator::TraceEntry& entry) {
    using Action = allocator::TraceEntry::Action;
    if (entry.action_ == Action::SEGMENT_FREE || entry.action_ == Action::SEGMENT_UNMAP)
      note_freed(reinterpret_cast<const void*>(entry.addr_));
  });
#endif
}

}  // namespace tutti_torch
