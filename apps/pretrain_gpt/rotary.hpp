// apps/pretrain_gpt/rotary.hpp - rotary position embeddings (https://arxiv.org/abs/2104.09864), in the form of Llama:
// feature i of a head turns with feature i + d/2, by position · base^(−2i/d).
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tutti/train/llama_config.hpp"

namespace pretrain {

class Rotary {
 public:
  Rotary() = default;  // turns nothing
  // For tokens at these positions of the whole sequence.
  Rotary(const std::vector<std::int64_t>& positions, std::int64_t head_dim, double base,
         const std::optional<tutti::train::RopeScaling>& scaling = {});

  // [b, heads, s, d], in its own type; narrow floats are turned in f32.
  torch::Tensor turn(const torch::Tensor& x) const;
  void move_to(torch::Device device);

 private:
  torch::Tensor cos_, sin_;  // [s, d], f64
};

}  // namespace pretrain
