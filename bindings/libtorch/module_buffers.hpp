// bindings/libtorch/module_buffers.hpp - a module's buffers (running means and the like): rank 0's
// for all before each step, and what a checkpoint saves of them.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "tutti/train.hpp"

namespace tutti::libtorch {

// Where each of them lies now. One that does not lie in one piece is given memory of its own. Types
// that tutti has no name for (complex ones) are lists of bytes.
std::vector<train::ModuleBuffer> module_buffers(const torch::nn::Module& module);

// Collective.
Status broadcast_buffers(const torch::nn::Module& module, Group& group);

}  // namespace tutti::libtorch
