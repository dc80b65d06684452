// driver.hpp - the few calls of the CUDA driver that arrays on a GPU need around a collective.
//
// Found at run time, as libtutti finds its own: the module works where there is no driver, until somebody
// passes such an array. Streams are handles as the driver takes them; 0 is the legacy default stream.
//
// Failure        raises tutti.errors; the caller holds the interpreter's lock.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti_python {

// The GPU that `address` lies on.
int gpu_of(std::uintptr_t address);
// Where the allocation begins that `address` lies in.
std::uintptr_t allocation_of(std::uintptr_t address);
// What is put into `stream` from now on waits for what is in `other`. `address` says on which GPU.
void order_streams(std::uintptr_t other, std::uintptr_t stream, std::uintptr_t address);
// Puts a copy on one GPU into `stream`.
void copy_on_gpu(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, std::uintptr_t stream);

}  // namespace tutti_python
