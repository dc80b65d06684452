#include "cuda/failure.hpp"

#include <fmt/format.h>

namespace tutti::cuda {
namespace {

// After one of these every call in this process fails alike.
bool loses_context(CUresult result) {
  switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED: return true;
    default: return false;
  }
}

const char* meaning_of(CUresult result) {
  if (loses_context(result)) return ": the GPU is lost to this process; a new one may use it";
  switch (result) {
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
      return ": this build has no kernels for such a GPU (TUTTI_CUDA_ARCHITECTURES)";
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_IMAGE:
      return ": the driver is older than the toolkit that this build was made with";
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: return ": a stream is being captured";
    case CUDA_ERROR_NOT_INITIALIZED: return ": was this process forked after CUDA was in use?";
    default: return "";
  }
}

}  // namespace

std::string describe(const CudaDriver& driver, CUresult result, const char* call) {
  const char* name = nullptr;
  const char* words = nullptr;
  driver.cuGetErrorName(result, &name);
  driver.cuGetErrorString(result, &words);
  return fmt::format("{} failed: {} ({}){}", call, words ? words : "unknown error",
                     name ? name : std::to_string(static_cast<int>(result)), meaning_of(result));
}

Code code_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return Code::out_of_memory;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_DEVICE_NOT_LICENSED:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: return Code::unsupported;
    // What its owner had at the same place before is still open in this process.
    case CUDA_ERROR_ALREADY_MAPPED: return Code::timed_out;
    default: return Code::io;
  }
}

Status status_of(const CudaDriver& driver, CUresult result, const char* call, int ordinal) {
  if (result == CUDA_SUCCESS) return {};
  return Status(code_of(result),
                fmt::format("GPU {}: {}", ordinal, describe(driver, result, call)));
}

}  // namespace tutti::cuda
