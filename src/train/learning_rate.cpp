#include "tutti/train/learning_rate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace tutti::train {
inline namespace v1 {
namespace {

constexpr std::array<std::string_view, 4> kStyles = {"constant", "linear", "cosine",
                                                     "inverse-square-root"};

// What is left at `share` of the way from the end of the warm-up to the end of the decay.
double coefficient(DecayStyle style, double share) {
  if (style == DecayStyle::linear) return 1 - share;
  return 0.5 * (std::cos(std::numbers::pi * share) + 1);
}

}  // namespace

std::string_view to_string(DecayStyle style) noexcept {
  return kStyles[static_cast<std::size_t>(style)];
}

std::optional<DecayStyle> parse_decay_style(std::string_view word) noexcept {
  const auto found = std::find(kStyles.begin(), kStyles.end(), word);
  if (found == kStyles.end()) return std::nullopt;
  return static_cast<DecayStyle>(found - kStyles.begin());
}

double LearningRate::at(std::int64_t step) const {
  const auto now = static_cast<double>(step);
  const auto warmup = static_cast<double>(warmup_steps);
  if (warmup_steps > 0 && step <= warmup_steps) return lr * now / warmup;
  if (style == DecayStyle::constant) return lr;
  if (step > decay_steps) return min_lr;
  if (style == DecayStyle::inverse_square_root)
    return std::max(min_lr, lr * std::sqrt(std::max(warmup, 1.0)) / std::sqrt(std::max(now, 1.0)));
  // Here warmup_steps < step ≤ decay_steps: there is something to divide by.
  const double share = (now - warmup) / (static_cast<double>(decay_steps) - warmup);
  return min_lr + coefficient(style, share) * (lr - min_lr);
}

}  // namespace v1
}  // namespace tutti::train
