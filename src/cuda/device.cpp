#include "cuda/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "cuda/device_state.hpp"

namespace tutti::cuda {
namespace {

// 0 also where the driver does not know the attribute yet.
int attribute(const CudaDriver& driver, CUdevice device, CUdevice_attribute which) {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

// An older driver does not tell about MPS: "no" then, because a wrong "yes" would let kernels of several
// processes wait for each other while only one of them runs.
Status read_facts(const CudaDriver& driver, CUdevice device, int ordinal, DeviceFacts& facts) {
  char name[256] = {};
  CUuuid uuid{};
  CUresult result = driver.cuDeviceGetName(name, sizeof name, device);
  if (result == CUDA_SUCCESS) result = driver.cuDeviceGetUuid_v2(&uuid, device);
  if (result == CUDA_SUCCESS) result = driver.cuDeviceTotalMem_v2(&facts.memory_bytes, device);
  const auto ask = [&](CUdevice_attribute which) { return attribute(driver, device, which); };
  facts.name = name;
  static_assert(sizeof uuid.bytes == sizeof facts.uuid);
  std::memcpy(facts.uuid.data(), uuid.bytes, sizeof uuid.bytes);
  facts.ordinal = ordinal;
  facts.multiprocessors = ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  facts.compute_major = ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  facts.compute_minor = ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  facts.memory_operations = ask(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) != 0;
  facts.under_mps = ask(CU_DEVICE_ATTRIBUTE_MPS_ENABLED) != 0;
  return status_of(driver, result, "asking for its name, UUID and memory", ordinal);
}

}  // namespace

Result<int> count_devices() {
  const Result<const CudaDriver*> found = driver();
  if (!found.ok()) return found.status();
  int count = 0;
  const CUresult result = (*found)->cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS)
    return Status(Code::unsupported, describe(**found, result, "cuDeviceGetCount"));
  if (count == 0) return Status(Code::unsupported, "the CUDA driver sees no GPU");
  return count;
}

bool is_built_in() { return true; }

Result<DeviceFacts> look_at(int ordinal) {
  const Result<const CudaDriver*> found = driver();
  if (!found.ok()) return found.status();
  CUdevice device = 0;
  DeviceFacts facts;
  Status status =
      status_of(**found, (*found)->cuDeviceGet(&device, ordinal), "cuDeviceGet", ordinal);
  if (status.ok()) status = read_facts(**found, device, ordinal, facts);
  if (!status.ok()) return status;
  return facts;
}

bool may_reach(int from, int to) {
  const Result<const CudaDriver*> found = driver();
  if (!found.ok()) return false;
  CUdevice devices[2] = {};
  int can = 0;
  return (*found)->cuDeviceGet(&devices[0], from) == CUDA_SUCCESS &&
         (*found)->cuDeviceGet(&devices[1], to) == CUDA_SUCCESS &&
         (*found)->cuDeviceCanAccessPeer(&can, devices[0], devices[1]) == CUDA_SUCCESS && can != 0;
}

// Asked for several attributes at once, the driver leaves them 0 for memory that it does not know; asked
// for one it fails. Whatever fails here: an address that the driver cannot say anything of is not its.
Result<int> device_of(const void* address) {
  const CudaDriver* driver = loaded_driver();
  if (driver == nullptr) return -1;
  unsigned type = 0;
  int ordinal = -1;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* answers[] = {&type, &ordinal};
  const CUresult result = driver->cuPointerGetAttributes(2, attributes, answers,
                                                         reinterpret_cast<CUdeviceptr>(address));
  return result == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE ? ordinal : -1;
}

int current_device() {
  const CudaDriver* driver = loaded_driver();
  CUdevice device = 0;
  if (driver == nullptr || driver->cuCtxGetDevice(&device) != CUDA_SUCCESS) return 0;
  return static_cast<int>(device);
}

Status Device::State::open_context() {
  CUresult result = driver.cuDeviceGet(&device, ordinal);
  if (result != CUDA_SUCCESS) return status_of(driver, result, "cuDeviceGet", ordinal);
  result = driver.cuDevicePrimaryCtxRetain(&context, device);
  if (result != CUDA_SUCCESS) return status_of(driver, result, "cuDevicePrimaryCtxRetain", ordinal);
  same_host_addresses =
      attribute(driver, device, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) != 0;
  return make("cuCtxGetStreamPriorityRange", [&](const CudaDriver& d) {
    return d.cuCtxGetStreamPriorityRange(&least_stream_priority, &stream_priority);
  });
}

// Failures are of no use to anybody here: at the end of a process the driver is gone before.
Device::State::~State() {
  if (context == nullptr) return;
  ask([&](const CudaDriver& d) {
    for (CUmodule loaded : modules) d.cuModuleUnload(loaded);
    return CUDA_SUCCESS;
  });
  for (const auto& [other, _] : reached) driver.cuDevicePrimaryCtxRelease_v2(other);
  driver.cuDevicePrimaryCtxRelease_v2(device);
}

namespace {

// What this process has open. Ranks that are threads of it share its contexts, so they must share what is
// known of them: a second global beside core/process_hooks, and as little of one.
struct OpenDevices {
  std::mutex mutex;
  std::map<int, std::weak_ptr<Device>> devices;
};
OpenDevices& open_devices() {
  static auto* const kDevices = new OpenDevices;  // outlives whoever still has a device at exit
  return *kDevices;
}

}  // namespace

Result<std::shared_ptr<Device>> Device::open(int ordinal) {
  std::scoped_lock lock(open_devices().mutex);
  std::weak_ptr<Device>& known = open_devices().devices[ordinal];
  if (auto device = known.lock()) return device;
  auto device = open_anew(ordinal);
  if (device.ok()) known = *device;
  return device;
}

Result<std::shared_ptr<Device>> Device::open_anew(int ordinal) {
  const Result<const CudaDriver*> found = driver();
  if (!found.ok()) return found.status();
  auto state = std::make_unique<State>(**found, ordinal);
  DeviceFacts facts;
  Status status = state->open_context();
  if (status.ok()) status = read_facts(**found, state->device, ordinal, facts);
  if (status.ok()) status = state->load_kernels();
  state->multiprocessors = std::max(facts.multiprocessors, 1);
  if (!status.ok()) return status;
  std::shared_ptr<Device> device(new Device(std::move(state)));
  device->facts_ = std::move(facts);
  return device;
}

Device::Device(std::unique_ptr<State> state) : state_(std::move(state)) {}
Device::~Device() {
  for (const auto& [kind, address] : attic_) free_now(kind, address);
}

bool Device::push_current() {
  CUcontext before = nullptr;
  const CudaDriver& driver = state_->driver;
  if (driver.cuCtxGetCurrent(&before) == CUDA_SUCCESS && before == state_->context) return false;
  return driver.cuCtxPushCurrent_v2(state_->context) == CUDA_SUCCESS;
}

void Device::pop_current() {
  CUcontext popped = nullptr;
  state_->driver.cuCtxPopCurrent_v2(&popped);
}

bool Device::can_reach(int other) {
  if (other == state_->ordinal) return true;
  const std::lock_guard lock(state_->reach_mutex);
  if (state_->reached.contains(other)) return true;
  const CudaDriver& driver = state_->driver;
  CUdevice device = 0;
  int can = 0;
  if (driver.cuDeviceGet(&device, other) != CUDA_SUCCESS ||
      driver.cuDeviceCanAccessPeer(&can, state_->device, device) != CUDA_SUCCESS || can == 0)
    return false;
  CUcontext context = nullptr;
  if (driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return false;
  const CUresult result =
      state_->ask([&](const CudaDriver& d) { return d.cuCtxEnablePeerAccess(context, 0); });
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
    driver.cuDevicePrimaryCtxRelease_v2(device);
    return false;
  }
  state_->reached.emplace(device, context);
  return true;
}

}  // namespace tutti::cuda
