#include "tutti/train/learning_rate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
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

template <class Number>
bool read(const std::map<std::string, std::string>& words, const char* name, Number& value) {
  const auto word = words.find(name);
  if (word == words.end()) return false;
  const char* end = word->second.data() + word->second.size();
  const auto result = std::from_chars(word->second.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
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

double LearningRate::at(std::int64_t update) const {
  const auto now = static_cast<double>(update);
  const auto warmup = static_cast<double>(warmup_steps);
  if (warmup_steps > 0 && update <= warmup_steps) return lr * now / warmup;
  if (style == DecayStyle::constant) return lr;
  if (update > decay_steps) return min_lr;
  if (style == DecayStyle::inverse_square_root)
    return std::max(min_lr, lr * std::sqrt(std::max(warmup, 1.0)) / std::sqrt(std::max(now, 1.0)));
  // Here warmup_steps < update ≤ decay_steps: there is something to divide by.
  const double share = (now - warmup) / (static_cast<double>(decay_steps) - warmup);
  return min_lr + coefficient(style, share) * (lr - min_lr);
}

std::map<std::string, std::string> to_words(const LearningRate& rate) {
  return {{"lr", fmt::format("{}", rate.lr)},
          {"min_lr", fmt::format("{}", rate.min_lr)},
          {"lr_warmup_iters", fmt::format("{}", rate.warmup_steps)},
          {"lr_decay_iters", fmt::format("{}", rate.decay_steps)},
          {"lr_decay_style", std::string(to_string(rate.style))}};
}

std::optional<LearningRate> learning_rate_of(const std::map<std::string, std::string>& words) {
  LearningRate rate;
  const auto style = words.find("lr_decay_style");
  if (style == words.end() || !parse_decay_style(style->second)) return std::nullopt;
  rate.style = *parse_decay_style(style->second);
  const bool whole = read(words, "lr", rate.lr) && read(words, "min_lr", rate.min_lr) &&
                     read(words, "lr_warmup_iters", rate.warmup_steps) &&
                     read(words, "lr_decay_iters", rate.decay_steps);
  return whole ? std::optional(rate) : std::nullopt;
}

}  // namespace v1
}  // namespace tutti::train
