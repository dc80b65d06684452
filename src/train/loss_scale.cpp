#include "tutti/train/loss_scale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/take_number.hpp"

namespace tutti::train {
inline namespace v1 {

void LossScale::note(Outcome outcome) {
  if (options_.fixed > 0) return;
  if (outcome == Outcome::skipped || outcome == Outcome::rejected) {
    good_ = 0;
    if (++skipped_ >= options_.hysteresis) scale_ = std::max(scale_ / 2, options_.least);
  }
  if (outcome != Outcome::updated || ++good_ < options_.window) return;
  good_ = skipped_ = 0;
  scale_ = std::min(scale_ * 2, 0x1p120);  // far from where f32 ends
}

std::string LossScale::state() const {
  return fmt::format("scale {} good {} skipped {}", scale_, good_, skipped_);
}

Status LossScale::restore(std::string_view state) {
  LossScale seen(options_);
  if (!(take_number(state, "scale ", seen.scale_) && take_number(state, " good ", seen.good_) &&
        take_number(state, " skipped ", seen.skipped_) && state.empty() && seen.scale_ > 0 &&
        std::isfinite(seen.scale_)))
    return {Code::corrupt, "the state of the loss scale cannot be read"};
  if (options_.fixed == 0) *this = seen;
  return {};
}

}  // namespace v1
}  // namespace tutti::train
