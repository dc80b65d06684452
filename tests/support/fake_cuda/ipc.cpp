// Memory of other processes: a handle says whose file it is, and /proc lets it be opened.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "support/fake_cuda/fake.hpp"

namespace fake_cuda {
namespace {

struct HandleBytes {
  std::uint64_t magic;
  std::int32_t process;
  std::int32_t file;
  std::uint64_t bytes;
  std::uint64_t inode;  // another file may have the number by the time that it is opened
  std::int32_t device;
  std::uint64_t address;
};
static_assert(sizeof(HandleBytes) <= sizeof(CUipcMemHandle));
constexpr std::uint64_t kMagic = 0x656b61665f637069;

std::size_t whole_pages(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

CUresult map_file(const HandleBytes& given, std::uintptr_t& base) {
  const std::string path =
      "/proc/" + std::to_string(given.process) + "/fd/" + std::to_string(given.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  struct stat facts {};
  void* data = MAP_FAILED;
  if (::fstat(file, &facts) == 0 && facts.st_ino == given.inode)
    data = ::mmap(nullptr, whole_pages(given.bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (data == MAP_FAILED) return CUDA_ERROR_INVALID_VALUE;
  base = reinterpret_cast<std::uintptr_t>(data);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  if (steering().no_ipc) return CUDA_ERROR_NOT_SUPPORTED;
  Allocation found;
  if (!allocations().find(address, found) || found.kind != Kind::device)
    return CUDA_ERROR_INVALID_VALUE;
  const HandleBytes made{kMagic,      ::getpid(),   found.file, found.bytes,
                         found.inode, found.device, found.base};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &made, sizeof made);
  return CUDA_SUCCESS;
}

// Not in the process that made the handle; again in the same process gives the same address.
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned) {
  if (const CUresult result = begin_unsafe_call(); result != CUDA_SUCCESS) return result;
  HandleBytes given;
  std::memcpy(&given, &handle, sizeof given);
  if (steering().no_ipc) return CUDA_ERROR_NOT_SUPPORTED;
  if (given.magic != kMagic) return CUDA_ERROR_INVALID_VALUE;
  if (given.process == ::getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  std::uintptr_t base = allocations().open_again(given.inode);
  if (base == 0) {
    if (allocations().has_stale(given.process, given.address, given.inode)) {
      std::fprintf(stderr, "fake_cuda: what lay there before is still open\n");
      return CUDA_ERROR_ALREADY_MAPPED;
    }
    if (const CUresult result = map_file(given, base); result != CUDA_SUCCESS) return result;
    allocations().add({Kind::imported, base, given.bytes, 0, given.device, -1, given.inode, 1,
                       given.process, given.address});
  }
  *address = base;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  if (const CUresult result = begin_unsafe_call(); result != CUDA_SUCCESS) return result;
  wait_until_idle();
  Allocation found;
  if (!allocations().find(address, found) || found.kind != Kind::imported || found.base != address)
    return CUDA_ERROR_INVALID_VALUE;
  if (!allocations().close_once(address)) return CUDA_SUCCESS;
  allocations().remove(address, Kind::imported, found);
  ::munmap(reinterpret_cast<void*>(found.base), whole_pages(found.bytes));
  return CUDA_SUCCESS;
}
