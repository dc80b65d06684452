// cuda/driver.hpp - the CUDA driver's functions, found at run time.
//
// libtutti is not linked to libcuda.so.1, so that one build works on machines with and without a GPU.
// Only this room includes this header, or CUDA's.
//
// Thread-safety  any thread. The table is made once per process and never changes.
#pragma once

#include <cuda.h>

#include "tutti/status.hpp"

namespace tutti::cuda {

// One member per row of driver.def, called like the function: driver->cuInit(0). Where cuda.h makes a
// macro of a row's name, it does so wherever the member is named, and the type is the same.
struct CudaDriver {
#define TUTTI_DRIVER_CALL(symbol, need) decltype(&::symbol) symbol = nullptr;
#include "cuda/driver.def"
#undef TUTTI_DRIVER_CALL
};

// The driver, loaded and initialised; unsupported, with the reason, where that fails, then and later.
Result<const CudaDriver*> driver();

// The driver if something in this process has loaded it, initialised or not; else null. Where it is null,
// nobody can have any device memory, and a program that uses none is spared the half second that
// initialising takes (and may still fork).
const CudaDriver* loaded_driver();

}  // namespace tutti::cuda
