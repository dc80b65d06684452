// Memory of the device, pinned memory of the host, and both as other processes see them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cuda/device.hpp"
#include "cuda/device_state.hpp"

namespace tutti::cuda {

void Memory::swap(Memory& other) {
  std::swap(device_, other.device_);
  std::swap(kind_, other.kind_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
}

Memory::~Memory() {
  if (device_ != nullptr) device_->free(kind_, address_);
}

void Device::free(Memory::Kind kind, Address address) {
  {
    std::scoped_lock lock(attic_mutex_);
    attic_.push_back({kind, address});
    to_free_.store(attic_.size(), std::memory_order_relaxed);
  }
  sweep();
}

// Whatever is left is freed when a group steps, when more is allocated, or with the device.
void Device::sweep() {
  if (!has_to_free()) return;
  std::vector<std::pair<Memory::Kind, Address>> attic;
  traffic_.while_quiet([&] {
    {
      std::scoped_lock lock(attic_mutex_);
      attic.swap(attic_);
      to_free_.store(0, std::memory_order_relaxed);
    }
    for (const auto& [kind, address] : attic) free_now(kind, address);
  });
}

void Device::free_now(Memory::Kind kind, Address address) {
  state_->ask([&](const CudaDriver& d) {
    return kind == Memory::Kind::device ? d.cuMemFree_v2(address)
                                        : d.cuMemFreeHost(reinterpret_cast<void*>(address));
  });
}

Result<Memory> Device::allocate(std::size_t bytes) {
  sweep();
  CUdeviceptr address = 0;
  const Status status = state_->make("cuMemAlloc", [&](const CudaDriver& d) {
    return d.cuMemAlloc_v2(&address, std::max<std::size_t>(bytes, 1));
  });
  if (!status.ok()) return status.annotate(fmt::format("{} bytes of device memory", bytes));
  return Memory(shared_from_this(), Memory::Kind::device, address, bytes);
}

Result<Memory> Device::allocate_pinned(std::size_t bytes) {
  sweep();
  void* data = nullptr;
  const Status status = state_->make("cuMemHostAlloc", [&](const CudaDriver& d) {
    return d.cuMemHostAlloc(&data, std::max<std::size_t>(bytes, 1),
                            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  });
  if (!status.ok()) return status.annotate(fmt::format("{} bytes of pinned memory", bytes));
  return Memory(shared_from_this(), Memory::Kind::pinned, reinterpret_cast<Address>(data), bytes);
}

Status Device::register_host(void* data, std::size_t bytes) {
  if (!state_->same_host_addresses)
    return Status(Code::unsupported,
                  fmt::format("GPU {}: registered host memory has other addresses on the device",
                              state_->ordinal));
  const CUresult result = state_->ask([&](const CudaDriver& d) {
    return d.cuMemHostRegister_v2(data, bytes,
                                  CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  });
  if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) return {};
  return status_of(state_->driver, result, "cuMemHostRegister", state_->ordinal);
}

void Device::unregister_host(void* data) {
  state_->ask([&](const CudaDriver& d) { return d.cuMemHostUnregister(data); });
}

Result<Allocation> Device::allocation_of(Address address) const {
  Allocation allocation;
  CUdeviceptr base = 0;
  unsigned long long id = 0;
  Status status = state_->make("cuMemGetAddressRange", [&](const CudaDriver& d) {
    return d.cuMemGetAddressRange_v2(&base, &allocation.bytes, address);
  });
  if (status.ok())
    status = state_->make("cuPointerGetAttribute", [&](const CudaDriver& d) {
      return d.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, base);
    });
  if (!status.ok()) return status;
  allocation.base = base;
  allocation.id = id;
  return allocation;
}

// Whatever keeps a handle from being made, the memory cannot be shared, and the caller goes another way;
// unless the device itself is lost.
Result<IpcHandle> Device::export_allocation(const Allocation& allocation) const {
  int capable = 1;
  CUipcMemHandle made{};
  const CUresult asked = state_->ask([&](const CudaDriver& d) {
    return d.cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                   allocation.base);
  });
  if (asked == CUDA_SUCCESS && capable == 0)
    return Status(
        Code::unsupported,
        fmt::format("GPU {}: the memory at {:#x} is of a kind that other processes cannot "
                    "map (of a memory pool, or mapped by virtual addresses)",
                    state_->ordinal, allocation.base));
  const CUresult result =
      state_->ask([&](const CudaDriver& d) { return d.cuIpcGetMemHandle(&made, allocation.base); });
  const Status status = status_of(state_->driver, result, "cuIpcGetMemHandle", state_->ordinal);
  if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_DEVICE)
    return Status(Code::unsupported, status.message());
  if (!status.ok()) return status;
  IpcHandle handle;
  static_assert(sizeof made.reserved == sizeof handle);
  std::memcpy(handle.data(), made.reserved, sizeof handle);
  return handle;
}

Result<Address> Device::import_allocation(const IpcHandle& handle) {
  CUdeviceptr address = 0;
  CUipcMemHandle given{};
  std::memcpy(given.reserved, handle.data(), sizeof handle);
  const Status status = state_->make("cuIpcOpenMemHandle", [&](const CudaDriver& d) {
    return d.cuIpcOpenMemHandle_v2(&address, given, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  });
  if (!status.ok()) return status;
  return Address{address};
}

void Device::close_import(Address base) {
  state_->ask([&](const CudaDriver& d) { return d.cuIpcCloseMemHandle(base); });
}

}  // namespace tutti::cuda
