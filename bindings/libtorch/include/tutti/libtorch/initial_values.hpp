// tutti/libtorch/initial_values.hpp - first values of a parameter that do not depend on how the model is split.
//
// The whole tensor is drawn, in f32 and from a generator of its own that is seeded by the parameter's name, and
// this rank's box of it is kept: the values of an unsplit model, bit for bit. Only one whole tensor exists
// at a time, and nobody else's generator is touched.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>

#include "tutti/libtorch/placed.hpp"

namespace tutti::libtorch {

// What torch::manual_seed is given for a parameter of this name: splitmix64 over seed and letters.
std::uint64_t seed_of_name(std::uint64_t seed, const std::string& name);

// Fills `part` with its box of a whole tensor that normal_(0, spread) has drawn.
void fill_normal(torch::Tensor part, const Placed& placed, std::uint64_t seed,
                 const std::string& name, double spread);

}  // namespace tutti::libtorch
