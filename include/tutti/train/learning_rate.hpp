// tutti/train/learning_rate.hpp - the learning rate of each step, by Megatron's rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

enum class DecayStyle : std::uint8_t { constant, linear, cosine, inverse_square_root };
std::string_view to_string(DecayStyle style) noexcept;  // "inverse-square-root"
std::optional<DecayStyle> parse_decay_style(std::string_view word) noexcept;

struct LearningRate {
  double lr = 1e-3;
  double min_lr = 0;
  std::int64_t warmup_steps = 0;  // linear from lr/warmup_steps
  std::int64_t decay_steps = 0;   // min_lr is reached there
  DecayStyle style = DecayStyle::cosine;

  // Of step 1, 2, ….
  double at(std::int64_t step) const;
};

}  // namespace v1
}  // namespace tutti::train
