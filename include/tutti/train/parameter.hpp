// tutti/train/parameter.hpp - what the training layer knows of a model: a list of parameters, and how
// they are to be updated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tutti/buffer.hpp"
#include "tutti/types.hpp"

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

// A box of a tensor: in each dimension `extent` of `whole` elements, from `first` on. All three are of one
// length; the box's own elements lie in row-major order. Empty: the tensor itself.
struct TensorBox {
  std::vector<std::int64_t> whole{};
  std::vector<std::int64_t> first{};
  std::vector<std::int64_t> extent{};
  bool operator==(const TensorBox&) const = default;
};

// What a parameter is of a model that is cut over ranks (tensor, pipeline and context parallelism). Left
// as it is: this rank has the whole tensor, and other data groups (train::Groups) have others.
//
// `box` may be in another shape than the tensor's, if that has the same elements in the same order. A
// fused qkv weight [3h, h] that is cut by heads is one box of [3, heads, d, h] only:
//
//   whole_shape {3h, h}     box.whole {3, heads, d, h}, first {0, heads/2, 0, 0}, extent {3, heads/2, d, h}
struct ParameterPlace {
  std::vector<std::int64_t> whole_shape{};  // in a model that is not cut; empty: Parameter::shape
  TensorBox box{};                          // this rank's part of it
  // False: another data group has the same box, and there it counts, for the norm, in checkpoints and in
  // hashes. Here it is updated like the other one, from the same gradients.
  bool counted = true;
  // Index into Groups::sums, whose ranks have the same box: each one's gradient is a part of a sum over
  // them. (Norms on a split sequence; an embedding that the first and the last pipeline stage share.)
  // -1: gradients are whole.
  int sum = -1;
  bool operator==(const ParameterPlace&) const = default;
};

// One tensor of the model, or this rank's box of it. A tied one is listed once, with its other names as
// aliases.
struct Parameter {
  std::string name;                  // as in the tree of the whole model; no two alike
  std::vector<std::string> aliases;  // other names of the same tensor
  std::vector<std::int64_t> shape;   // here
  Buffer value;                      // f32 or bf16; its contents are where training starts
  int group = 0;                     // index into DataParallelOptions::groups
  bool frozen = false;               // has no gradient and stays where it is, in `value`
  ParameterPlace place{};
  // How often a gradient comes in a backward: more often where several tensors share its memory.
  int gradients = 1;
  // With zero = 3: parameters of one unit, such as a block of layers, are gathered and let go of together.
  // -1: with others of about that place, as many as fit into bucket_bytes.
  int unit = -1;

  std::size_t count() const noexcept { return value.count; }
};

// A tensor of the model that is not trained, such as a running mean. Any type.
struct ModuleBuffer {
  std::string name;  // as in the module tree; no parameter's
  std::vector<std::int64_t> shape;
  Buffer value;
};

// Parameters that are updated alike.
struct ParameterGroup {
  double weight_decay = 0;
  double lr_scale = 1;
};

// Decoupled weight decay, as torch::optim::AdamW.
struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

// As torch::optim::SGD: buf = momentum · buf + g (the first time: g), w -= lr · buf; decay is added
// to g.
struct Sgd {
  double momentum = 0.9;
};

using Optimizer = std::variant<AdamW, Sgd>;

}  // namespace v1
}  // namespace tutti::train
