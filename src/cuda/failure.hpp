// cuda/failure.hpp - what the driver says when it fails, as a Status.
#pragma once

#include <string>

#include "cuda/driver.hpp"
#include "tutti/status.hpp"

namespace tutti::cuda {

// "cuMemAlloc_v2 failed: out of memory (CUDA_ERROR_OUT_OF_MEMORY)", and what that means where the driver's
// words do not say it.
std::string describe(const CudaDriver& driver, CUresult result, const char* call);

// out_of_memory; unsupported where it cannot be done on this machine; else io.
Code code_of(CUresult result);

// ok where `result` is; else both of the above. Names the GPU.
Status status_of(const CudaDriver& driver, CUresult result, const char* call, int ordinal);

}  // namespace tutti::cuda
