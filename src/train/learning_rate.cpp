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

constexpr std::array<std::string_view, 5> kStyles = {"constant", "linear", "cosine",
                                                     "inverse-square-root", "WSD"};
constexpr std::array<std::string_view, 4> kWsdStyles = {"exponential", "linear", "cosine",
                                                        "minus_sqrt"};

template <class Style, std::size_t kCount>
std::optional<Style> parse(const std::array<std::string_view, kCount>& words,
                           std::string_view word) {
  const auto found = std::find(words.begin(), words.end(), word);
  if (found == words.end()) return std::nullopt;
  return static_cast<Style>(found - words.begin());
}

// What is left at `share` of the way from the end of the warm-up to the end of the decay.
double coefficient(DecayStyle style, double share) {
  if (style == DecayStyle::linear) return 1 - share;
  return 0.5 * (std::cos(std::numbers::pi * share) + 1);
}

// The same of the part of wsd that falls.
double coefficient(WsdStyle style, double share) {
  switch (style) {
    case WsdStyle::exponential: return 2 * std::pow(0.5, share) - 1;
    case WsdStyle::linear: return coefficient(DecayStyle::linear, share);
    case WsdStyle::cosine: return coefficient(DecayStyle::cosine, share);
    case WsdStyle::minus_sqrt: return 1 - std::sqrt(share);
  }
  return 0;
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
  return parse<DecayStyle>(kStyles, word);
}

std::string_view to_string(WsdStyle style) noexcept {
  return kWsdStyles[static_cast<std::size_t>(style)];
}

std::optional<WsdStyle> parse_wsd_style(std::string_view word) noexcept {
  return parse<WsdStyle>(kWsdStyles, word);
}

double LearningRate::at(std::int64_t update) const {
  const auto now = static_cast<double>(update);
  const auto warmup = static_cast<double>(warmup_steps);
  if (warmup_steps > 0 && update <= warmup_steps)
    return warmup_init + (lr - warmup_init) * now / warmup;
  if (style == DecayStyle::constant) return lr;
  if (update > decay_steps) return min_lr;
  if (style == DecayStyle::inverse_square_root)
    return std::max(min_lr, lr * std::sqrt(std::max(warmup, 1.0)) / std::sqrt(std::max(now, 1.0)));
  if (style == DecayStyle::wsd) {
    const double fallen = now - static_cast<double>(decay_steps - wsd_steps);
    if (fallen <= 0) return lr;
    return min_lr + coefficient(wsd_style, fallen / static_cast<double>(wsd_steps)) * (lr - min_lr);
  }
  // Here warmup_steps < update ≤ decay_steps: there is something to divide by.
  const double share = (now - warmup) / (static_cast<double>(decay_steps) - warmup);
  return min_lr + coefficient(style, share) * (lr - min_lr);
}

std::map<std::string, std::string> to_words(const LearningRate& rate) {
  std::map<std::string, std::string> words = {
      {"lr", fmt::format("{}", rate.lr)},
      {"min_lr", fmt::format("{}", rate.min_lr)},
      {"lr_warmup_iters", fmt::format("{}", rate.warmup_steps)},
      {"lr_decay_iters", fmt::format("{}", rate.decay_steps)},
      {"lr_decay_style", std::string(to_string(rate.style))}};
  if (rate.warmup_init != 0) words["lr_warmup_init"] = fmt::format("{}", rate.warmup_init);
  if (rate.style == DecayStyle::wsd) {
    words["lr_wsd_decay_iters"] = fmt::format("{}", rate.wsd_steps);
    words["lr_wsd_decay_style"] = to_string(rate.wsd_style);
  }
  return words;
}

std::optional<LearningRate> learning_rate_of(const std::map<std::string, std::string>& words) {
  LearningRate rate;
  const auto style = words.find("lr_decay_style");
  if (style == words.end() || !parse_decay_style(style->second)) return std::nullopt;
  rate.style = *parse_decay_style(style->second);
  if (rate.style == DecayStyle::wsd) {
    const auto wsd = words.find("lr_wsd_decay_style");
    if (wsd == words.end() || !parse_wsd_style(wsd->second) ||
        !read(words, "lr_wsd_decay_iters", rate.wsd_steps))
      return std::nullopt;
    rate.wsd_style = *parse_wsd_style(wsd->second);
  }
  if (words.contains("lr_warmup_init") && !read(words, "lr_warmup_init", rate.warmup_init))
    return std::nullopt;
  const bool whole = read(words, "lr", rate.lr) && read(words, "min_lr", rate.min_lr) &&
                     read(words, "lr_warmup_iters", rate.warmup_steps) &&
                     read(words, "lr_decay_iters", rate.decay_steps);
  return whole ? std::optional(rate) : std::nullopt;
}

}  // namespace v1
}  // namespace tutti::train
