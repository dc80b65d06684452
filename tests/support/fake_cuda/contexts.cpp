// Devices, contexts, and the words for errors.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#include "support/fake_cuda/fake.hpp"

// The driver gives handles of these types away, and keeps to itself what they are.
struct CUctx_st {
  int device = 0;
  std::atomic<int> retained{0};
};

namespace fake_cuda {
namespace {

std::atomic<long>& calls() {
  static std::atomic<long> calls{0};
  return calls;
}
std::atomic<bool>& lost() {
  static std::atomic<bool> lost{false};
  return lost;
}
std::atomic<bool>& initialised() {
  static std::atomic<bool> initialised{false};
  return initialised;
}

CUctx_st* primary_of(int device) {
  static auto* const all = new std::array<CUctx_st, 64>;
  (*all)[static_cast<std::size_t>(device)].device = device;
  return &(*all)[static_cast<std::size_t>(device)];
}

struct ContextStack {
  std::array<CUctx_st*, 32> contexts;
  std::size_t depth;
};
thread_local ContextStack stack{};

bool is_device(int device) { return device >= 0 && device < steering().devices; }

}  // namespace

void lose_context() { lost() = true; }
bool is_lost() { return lost(); }

CUresult begin_call() {
  const long after = steering().break_after;
  if (after > 0 && calls().fetch_add(1) + 1 >= after) lose_context();
  if (is_lost()) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return initialised() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult begin_call_in_context() {
  const CUresult result = begin_call();
  if (result != CUDA_SUCCESS) return result;
  return current_device() >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult begin_unsafe_call() {
  const CUresult result = begin_call_in_context();
  if (result != CUDA_SUCCESS) return result;
  return is_forbidden_by_capture() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

int current_device() { return stack.depth == 0 ? -1 : stack.contexts[stack.depth - 1]->device; }

}  // namespace fake_cuda

using namespace fake_cuda;

// ---- errors

CUresult cuGetErrorName(CUresult error, const char** name) {
  switch (error) {
    case CUDA_SUCCESS: *name = "CUDA_SUCCESS"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_ERROR_NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
    case CUDA_ERROR_NOT_SUPPORTED: *name = "CUDA_ERROR_NOT_SUPPORTED"; break;
    case CUDA_ERROR_ILLEGAL_ADDRESS: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case CUDA_ERROR_INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; break;
    case CUDA_ERROR_INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
    default: *name = nullptr; return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** words) {
  switch (error) {
    case CUDA_SUCCESS: *words = "no error"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *words = "out of memory"; break;
    case CUDA_ERROR_NO_DEVICE: *words = "no CUDA-capable device is detected"; break;
    case CUDA_ERROR_NOT_SUPPORTED: *words = "operation not supported"; break;
    case CUDA_ERROR_ILLEGAL_ADDRESS: *words = "an illegal memory access was encountered"; break;
    case CUDA_ERROR_INVALID_CONTEXT: *words = "invalid device context"; break;
    case CUDA_ERROR_INVALID_VALUE: *words = "invalid argument"; break;
    default: *words = nullptr; return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// ---- devices

CUresult cuInit(unsigned) {
  if (steering().devices == 0) return CUDA_ERROR_NO_DEVICE;
  initialised() = true;
  return begin_call();
}

CUresult cuDeviceGetCount(int* count) {
  const CUresult result = begin_call();
  *count = result == CUDA_SUCCESS ? steering().devices : 0;
  return result;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (const CUresult result = begin_call(); result != CUDA_SUCCESS) return result;
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  if (const CUresult result = begin_call(); result != CUDA_SUCCESS) return result;
  std::snprintf(name, static_cast<std::size_t>(bytes), "emulated GPU %d", device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  if (const CUresult result = begin_call(); result != CUDA_SUCCESS) return result;
  std::memset(uuid->bytes, 0xf0 + device, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
  *bytes = steering().memory;
  return begin_call();
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (const CUresult result = begin_call(); result != CUDA_SUCCESS) return result;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
      *value = steering().no_memory_operations ? 0 : 1;
      break;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED: *value = steering().under_mps ? 1 : 0; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice other) {
  if (const CUresult result = begin_call(); result != CUDA_SUCCESS) return result;
  if (!is_device(device) || !is_device(other)) return CUDA_ERROR_INVALID_DEVICE;
  *can = device != other && !steering().no_peers ? 1 : 0;
  return CUDA_SUCCESS;
}

// ---- contexts

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (const CUresult result = begin_call(); result != CUDA_SUCCESS) return result;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = primary_of(device);
  ++(*context)->retained;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  if (const CUresult result = begin_call(); result != CUDA_SUCCESS) return result;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (--primary_of(device)->retained >= 0) return CUDA_SUCCESS;
  primary_of(device)->retained = 0;
  return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  const CUresult result = begin_call_in_context();
  if (result == CUDA_SUCCESS) *device = fake_cuda::current_device();
  return result;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  if (const CUresult result = begin_call(); result != CUDA_SUCCESS) return result;
  *context = stack.depth == 0 ? nullptr : stack.contexts[stack.depth - 1];
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (const CUresult result = begin_call(); result != CUDA_SUCCESS) return result;
  if (context == nullptr || context->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.depth == stack.contexts.size()) return CUDA_ERROR_OUT_OF_MEMORY;
  stack.contexts[stack.depth++] = context;
  return CUDA_SUCCESS;
}

// Also in a lost context, so that a thread is left as it was found.
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (stack.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  *context = stack.contexts[--stack.depth];
  return begin_call();
}

CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  static auto* const enabled = new std::set<std::pair<int, int>>;
  const std::lock_guard lock(state_mutex());
  return enabled->emplace(current_device(), other->device).second
             ? CUDA_SUCCESS
             : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return begin_call_in_context();
}
