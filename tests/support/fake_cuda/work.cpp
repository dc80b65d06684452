// What streams do: copies, memory operations, kernels.
#include <cstring>
#include <future>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/job.hpp"
#include "support/fake_cuda/fake.hpp"
#include "support/fake_cuda/kernels.hpp"
#include "support/fake_cuda/time_slice.hpp"

namespace fake_cuda {
namespace {

// What parameters are aligned to.
struct alignas(16) Word {
  std::byte bytes[16];
};

template <class T>
T* at(CUdeviceptr address) {
  return reinterpret_cast<T*>(address);
}

// Whether a device could get at the word.
bool is_reachable(CUdeviceptr address) {
  Allocation found;
  return address % sizeof(std::uint64_t) == 0 && allocations().find(address, found);
}

bool is_possible(const CUstreamBatchMemOpParams& each) {
  switch (each.operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_64: return is_reachable(each.writeValue.address);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return is_reachable(each.waitValue.address) &&
             each.waitValue.flags == CU_STREAM_WAIT_VALUE_GEQ;
    default: return false;
  }
}

void operate(const CUstreamBatchMemOpParams& each) {
  if (each.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64) {
    __atomic_store_n(at<std::uint64_t>(each.writeValue.address), each.writeValue.value64,
                     __ATOMIC_RELEASE);
    return;
  }
  poll_until([&] {
    const std::uint64_t word =
        __atomic_load_n(at<std::uint64_t>(each.waitValue.address), __ATOMIC_ACQUIRE);
    return static_cast<std::int64_t>(word - each.waitValue.value64) >= 0;
  });
}

std::shared_mutex& copies_to_pageable() {
  static std::shared_mutex mutex;
  return mutex;
}

CUresult copy_to_pageable(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  const std::unique_lock lock(copies_to_pageable());
  std::promise<void> copied;
  const CUresult result = enqueue(stream, [=, &copied] {
    std::memmove(at<void>(to), at<const void>(from), bytes);
    copied.set_value();
  });
  if (result == CUDA_SUCCESS) copied.get_future().wait();
  return result;
}

}  // namespace

std::shared_lock<std::shared_mutex> behind_copies() {
  return steering().held_by_copies ? std::shared_lock(copies_to_pageable())
                                   : std::shared_lock<std::shared_mutex>();
}

}  // namespace fake_cuda

using namespace fake_cuda;

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  Allocation pinned;
  if (steering().held_by_copies && !allocations().find(to, pinned))
    return copy_to_pageable(to, from, bytes, stream);
  const auto lock = behind_copies();
  return enqueue(stream, [=] { std::memmove(at<void>(to), at<const void>(from), bytes); });
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  return enqueue(stream, [=] { std::memset(at<void>(to), value, bytes); });
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* given,
                               unsigned flags) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  if (steering().no_memory_operations) return CUDA_ERROR_NOT_SUPPORTED;
  const std::vector<CUstreamBatchMemOpParams> operations(given, given + count);
  if (count > 256 || flags != 0 || !std::all_of(operations.begin(), operations.end(), is_possible))
    return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, [operations] {
    for (const CUstreamBatchMemOpParams& each : operations) operate(each);
  });
}

// ---- kernels: of whatever image, those that are compiled in here

CUresult cuModuleLoadData(CUmodule* loaded, const void* image) {
  if (const CUresult result = begin_unsafe_call(); result != CUDA_SUCCESS) return result;
  wait_until_idle();
  *loaded = static_cast<CUmodule>(const_cast<void*>(image));
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  wait_until_idle();
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* kernel, CUmodule, const char* name) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  *kernel = reinterpret_cast<CUfunction>(
      const_cast<tutti::cuda::DriverKernel*>(tutti::cuda::kernel_named(name)));
  return *kernel == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction) { return begin_call_in_context(); }

CUresult cuLaunchKernel(CUfunction kernel, unsigned blocks, unsigned blocks_y, unsigned blocks_z,
                        unsigned threads, unsigned threads_y, unsigned threads_z, unsigned shared,
                        CUstream stream, void** parameters, void** extra) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  if (blocks == 0 || threads == 0 || threads > tutti::cuda::kBlockThreads || shared != 0 ||
      blocks_y * blocks_z * threads_y * threads_z != 1 || extra != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const auto* const found = reinterpret_cast<const tutti::cuda::DriverKernel*>(kernel);
  // Copied now, as the driver does: the caller's may be gone when the kernel runs.
  const auto words = (found->parameter_bytes + sizeof(Word) - 1) / sizeof(Word);
  std::vector<Word> parameter(words);
  std::memcpy(parameter.data(), parameters[0], found->parameter_bytes);
  return enqueue(stream, [parameter = std::move(parameter), found] {
    const TimeSlice slice;
    found->run(parameter.data());
  });
}
