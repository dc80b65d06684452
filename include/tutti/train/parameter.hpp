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

// One tensor of the model. A tied one is listed once, with its other names as aliases.
struct Parameter {
  std::string name;                  // as in the module tree; no two alike
  std::vector<std::string> aliases;  // other names of the same tensor
  std::vector<std::int64_t> shape;
  Buffer value;         // f32 or bf16; its contents are where training starts
  int group = 0;        // index into DataParallelOptions::groups
  bool frozen = false;  // has no gradient and stays where it is, in `value`

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
