// tutti/libtorch/placed.hpp - which part of a model's parameter a rank has, and what its gradient is.
//
// A part is one box of the whole tensor, sometimes only after the whole is seen in finer dimensions: a fused
// weight [3h, h] that is cut by heads is one box of [3, heads, d, h].
//
//   whole        [3, 8, 16, 128]     elements as those of whole_shape [384, 128]
//   first        [0, 4,  0,   0]
//   shape        [3, 4, 16, 128]     the part, row-major: a weight [192, 128]
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "tutti/libtorch.hpp"

namespace tutti::libtorch {

// What constructors, forward and backward of split layers have no other way to say. Caught wherever a
// GateError is: DataParallel::backward returns its status.
class ParallelError : public GateError {
 public:
  using GateError::GateError;
};

struct Placed {
  std::vector<std::int64_t> whole_shape;  // of the tensor in a model that is not split
  std::vector<std::int64_t> whole;        // the same in finer dimensions
  std::vector<std::int64_t> first;        // where this rank's box begins in `whole`
  std::vector<std::int64_t> shape;        // of the box
  bool replicated = true;  // every rank of the group has the same box: it counts once in a norm
  bool partial = false;    // the gradient here is one part of a sum over the group

  // All of a tensor.
  static Placed whole_of(const torch::Tensor& tensor);
  // The part that begins at `begin` of dimension `cut` of `whole`, which has the elements of `whole_shape`.
  static Placed part_of(std::vector<std::int64_t> whole_shape, std::vector<std::int64_t> whole,
                        std::size_t cut, std::int64_t begin, std::int64_t length);
};

// A view of the whole tensor: this box, in dimensions of `whole`.
torch::Tensor box_of(const torch::Tensor& whole, const Placed& placed);

}  // namespace tutti::libtorch
