// fake_cuda/kernels.hpp - the kernels of src/cuda compiled for the host.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "cuda/kernels/phase.hpp"
#include "cuda/kernels/update.hpp"

namespace tutti::cuda {

using KernelBody = void (*)(const Phase&, kernels::Shared&, const kernels::Worker&);

// As the driver knows a kernel: its one parameter is so many bytes, and it is run as one block of one thread.
struct DriverKernel {
  std::string_view name;
  std::size_t parameter_bytes;
  void (*run)(const void* parameter);
};
// By the name that the driver would find it by; null: there is none.
const DriverKernel* kernel_named(std::string_view name);

// The one that Device::launch takes for a phase whose fold is done by the kernel of `row`
// (kernel_dtype in cuda/reduction.hpp).
KernelBody kernel_for(const Phase& phase, Dtype row);

// As one block of one thread.
void run_kernel(KernelBody kernel, const Phase& phase);

// As threads of this process, so many to a block, of which `at_once` run at the same time: the order in
// which a device with room for no more would take them.
struct GridSize {
  int blocks = 1;
  int threads = 1;
  int at_once = 1;
};
void run_grid(KernelBody kernel, const Phase& phase, GridSize size);
// Of a kernel without shared memory, or whose body finds it by the worker's block.
void run_grid(const std::function<void(const kernels::Worker&)>& body, GridSize size);

}  // namespace tutti::cuda
