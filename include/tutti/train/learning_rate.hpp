// tutti/train/learning_rate.hpp - the learning rate of each update, by Megatron's rules.
//
// It goes by updates, not by steps: one that was skipped does not bring it nearer to its end.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/cpp20.hpp"

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

// wsd: warm-up, stable, decay.
enum class DecayStyle : std::uint8_t { constant, linear, cosine, inverse_square_root, wsd };
std::string_view to_string(DecayStyle style) noexcept;  // "inverse-square-root", "WSD"
std::optional<DecayStyle> parse_decay_style(std::string_view word) noexcept;

// How the last part of wsd falls.
enum class WsdStyle : std::uint8_t { exponential, linear, cosine, minus_sqrt };
std::string_view to_string(WsdStyle style) noexcept;
std::optional<WsdStyle> parse_wsd_style(std::string_view word) noexcept;

struct LearningRate {
  double lr = 1e-3;
  double min_lr = 0;
  std::int64_t warmup_steps = 0;  // linear, up from `warmup_init` before the first update
  std::int64_t decay_steps = 0;   // min_lr is reached there
  DecayStyle style = DecayStyle::cosine;
  double warmup_init = 0;
  // Of wsd: the last so many of decay_steps fall to min_lr; before them lr stays.
  std::int64_t wsd_steps = 0;
  WsdStyle wsd_style = WsdStyle::exponential;

  // Of update 1, 2, ….
  double at(std::int64_t update) const;
};

// For CheckpointInfo::extra, under the names of Megatron's flags: lr, min_lr, lr_warmup_iters,
// lr_decay_iters, lr_decay_style; where they mean something also lr_warmup_init, lr_wsd_decay_iters and
// lr_wsd_decay_style. Numbers read back to the bit.
std::map<std::string, std::string> to_words(const LearningRate& rate);
// Absent when a word is missing or cannot be read; others are ignored.
std::optional<LearningRate> learning_rate_of(const std::map<std::string, std::string>& words);

}  // namespace v1
}  // namespace tutti::train
