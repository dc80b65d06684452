// cuda/images.hpp - the kernels as nvcc has compiled them, one image for each kernels/*.cu.
#pragma once

#include <span>

namespace tutti::cuda {

// For cuModuleLoadData: machine code for some architectures, and PTX for those to come.
std::span<const void* const> kernel_images();

}  // namespace tutti::cuda
