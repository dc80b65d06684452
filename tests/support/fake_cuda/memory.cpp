// Memory of the emulated devices: files in memory, so that other processes can map them, at addresses of
// the host. What a device would find uninitialised is filled with a pattern, at its beginning at least.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "support/fake_cuda/fake.hpp"

namespace fake_cuda {
namespace {

constexpr int kUninitialised = 0xcd;
constexpr std::size_t kFilled = 1 << 20;

std::size_t whole_pages(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

CUresult allocate_on_device(CUdeviceptr* address, std::size_t bytes, Kind kind) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const int device = current_device();
  if (allocations().bytes_on(device) + bytes > steering().memory) return CUDA_ERROR_OUT_OF_MEMORY;
  const int file = ::memfd_create("fake_cuda", MFD_CLOEXEC);
  struct stat facts {};
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(whole_pages(bytes))) != 0 ||
      ::fstat(file, &facts) != 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  void* const data =
      ::mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(data, kUninitialised, std::min(bytes, kFilled));
  *address = reinterpret_cast<CUdeviceptr>(data);
  allocations().add({kind, *address, bytes, 0, device, file, facts.st_ino});
  return CUDA_SUCCESS;
}

}  // namespace

void Allocations::add(Allocation allocation) {
  const std::lock_guard lock(mutex_);
  allocation.id = ++last_id_;
  by_base_[allocation.base] = allocation;
}

bool Allocations::find(std::uintptr_t address, Allocation& found) const {
  const std::lock_guard lock(mutex_);
  const auto after = by_base_.upper_bound(address);
  if (after == by_base_.begin()) return false;
  found = std::prev(after)->second;
  return address - found.base < found.bytes;
}

bool Allocations::remove(std::uintptr_t base, Kind kind, Allocation& removed) {
  const std::lock_guard lock(mutex_);
  const auto at = by_base_.find(base);
  if (at == by_base_.end() || at->second.kind != kind) return false;
  removed = at->second;
  by_base_.erase(at);
  return true;
}

bool Allocations::overlaps(std::uintptr_t base, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto after = by_base_.lower_bound(base + bytes);
  if (after == by_base_.begin()) return false;
  const Allocation& before = std::prev(after)->second;
  return before.base + before.bytes > base;
}

std::uintptr_t Allocations::open_again(std::uint64_t inode) {
  const std::lock_guard lock(mutex_);
  for (auto& [base, each] : by_base_)
    if (each.kind == Kind::imported && each.inode == inode) {
      ++each.opened;
      return base;
    }
  return 0;
}

bool Allocations::has_stale(int owner, std::uintptr_t there, std::uint64_t inode) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(by_base_.begin(), by_base_.end(), [&](const auto& entry) {
    const Allocation& each = entry.second;
    return each.kind == Kind::imported && each.owner == owner && each.there == there &&
           each.inode != inode;
  });
}

bool Allocations::close_once(std::uintptr_t base) {
  const std::lock_guard lock(mutex_);
  const auto at = by_base_.find(base);
  return at != by_base_.end() && --at->second.opened == 0;
}

std::size_t Allocations::bytes_on(int device) const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [_, each] : by_base_)
    if (each.device == device && (each.kind == Kind::device || each.kind == Kind::pool))
      bytes += each.bytes;
  return bytes;
}

Allocations& allocations() {
  static auto* const all = new Allocations;
  return *all;
}

}  // namespace fake_cuda

using namespace fake_cuda;

// ---- of the device

CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  if (const CUresult result = begin_unsafe_call(); result != CUDA_SUCCESS) return result;
  const auto held = behind_copies();
  return allocate_on_device(address, bytes, Kind::device);
}

// Memory that others cannot map, as that of a pool.
extern "C" [[gnu::visibility("default")]] CUresult fake_cuda_allocate_pool(CUdeviceptr* address,
                                                                           std::size_t bytes) {
  if (const CUresult result = begin_unsafe_call(); result != CUDA_SUCCESS) return result;
  return allocate_on_device(address, bytes, Kind::pool);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  if (const CUresult result = begin_unsafe_call(); result != CUDA_SUCCESS) return result;
  wait_until_idle();
  Allocation gone;
  if (!allocations().remove(address, Kind::device, gone) &&
      !allocations().remove(address, Kind::pool, gone))
    return CUDA_ERROR_INVALID_VALUE;
  ::munmap(reinterpret_cast<void*>(gone.base), whole_pages(gone.bytes));
  ::close(gone.file);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  Allocation found;
  if (!allocations().find(address, found) || !found.on_device()) return CUDA_ERROR_NOT_FOUND;
  *base = found.base;
  *bytes = found.bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  *total = steering().memory;
  *free = *total - std::min(*total, allocations().bytes_on(current_device()));
  return CUDA_SUCCESS;
}

// ---- of the host

CUresult cuMemHostAlloc(void** data, std::size_t bytes, unsigned) {
  if (const CUresult result = begin_unsafe_call(); result != CUDA_SUCCESS) return result;
  const auto held = behind_copies();
  void* const made = ::mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(made, kUninitialised, std::min(bytes, kFilled));
  allocations().add({Kind::pinned, reinterpret_cast<std::uintptr_t>(made), bytes});
  *data = made;
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* data) {
  if (const CUresult result = begin_unsafe_call(); result != CUDA_SUCCESS) return result;
  wait_until_idle();
  Allocation gone;
  if (!allocations().remove(reinterpret_cast<std::uintptr_t>(data), Kind::pinned, gone))
    return CUDA_ERROR_INVALID_VALUE;
  ::munmap(data, whole_pages(gone.bytes));
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void* data, std::size_t bytes, unsigned) {
  if (const CUresult result = begin_unsafe_call(); result != CUDA_SUCCESS) return result;
  const auto base = reinterpret_cast<std::uintptr_t>(data);
  if (data == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (allocations().overlaps(base, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  allocations().add({Kind::registered, base, bytes});
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* data) {
  if (const CUresult result = begin_unsafe_call(); result != CUDA_SUCCESS) return result;
  wait_until_idle();
  Allocation gone;
  return allocations().remove(reinterpret_cast<std::uintptr_t>(data), Kind::registered, gone)
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

// ---- what an address is

namespace {

CUresult attribute_of(const Allocation& allocation, CUpointer_attribute attribute, void* answer) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(answer) =
          allocation.on_device() ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(answer) = allocation.device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(answer) = allocation.id;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<int*>(answer) = allocation.kind == Kind::device ? 1 : 0;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult cuPointerGetAttribute(void* answer, CUpointer_attribute attribute, CUdeviceptr address) {
  if (const CUresult result = begin_call(); result != CUDA_SUCCESS) return result;
  Allocation found;
  if (!allocations().find(address, found)) return CUDA_ERROR_INVALID_VALUE;
  return attribute_of(found, attribute, answer);
}

// Of an address that nobody knows the answers are 0, or -1 for the device.
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** answers,
                                CUdeviceptr address) {
  if (const CUresult result = begin_call(); result != CUDA_SUCCESS) return result;
  Allocation found;
  const bool known = allocations().find(address, found);
  for (unsigned i = 0; i < count; ++i) {
    if (known)
      attribute_of(found, attributes[i], answers[i]);
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
      *static_cast<unsigned*>(answers[i]) = 0;
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
      *static_cast<int*>(answers[i]) = -2;
  }
  return CUDA_SUCCESS;
}
