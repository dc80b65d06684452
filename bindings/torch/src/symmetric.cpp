// Tensors in memory that every rank of the host has mapped: collectives on them copy nothing.
#include <ATen/ATen.h>

#include "backend.hpp"
#include "errors.hpp"

namespace tutti_torch {

at::Tensor Backend::allocate(std::size_t bytes) {
  const tutti::SymmetricMemory memory = levels_.with_group(0, [&](tutti::Group& group) {
    return take(group.allocate(std::max<std::size_t>(bytes, 1)));
  });
  return at::from_blob(
      memory.data, {static_cast<int64_t>(bytes)}, [owner = memory.owner](void*) {},
      at::TensorOptions().dtype(at::kByte));
}

}  // namespace tutti_torch
