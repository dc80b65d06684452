// tutti/train/loss_scale.hpp - by what the loss is multiplied before backward, so that gradients of f16 neither vanish nor
// overflow.
//
// f16 has no numbers between 0 and 6e-8, and none above 65504. The scale moves gradients into that range: it grows as
// long as they are finite, and falls when they are not. The layer divides by it again (StepInput::loss_scale), before the
// norm and the clipping, and skips a step whose gradients are not finite, on all ranks alike.
//
//   skipped    `hysteresis` times since it grew last: × 1/2, and again with each one that follows; not below `least`
//   updated    `window` times without a skip between: × 2
//
// A pure state machine: it sees outcomes, which are alike on all ranks, so its scale is too.
//
//   loss_sum.multiply(scale.value()); …backward…
//   auto report = model->step({.loss_scale = scale.value(), .tokens = tokens});
//   scale.note(report->outcome);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/status.hpp"
#include "tutti/train/data_parallel.hpp"

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

class LossScale {
 public:
  struct Options {
    double fixed = 0;              // above 0: that, always
    double initial = 4294967296.;  // 2^32
    double least = 1;
    std::int64_t window = 1000;
    std::int64_t hysteresis = 2;
  };
  explicit LossScale(Options options)
      : options_(options), scale_(options.fixed > 0 ? options.fixed : options.initial) {}

  double value() const noexcept { return scale_; }
  // Of the step that was computed with it.
  void note(Outcome outcome);
  // A step that is skipped makes it smaller, now or soon: what was too large may yet fit.
  bool may_fall() const noexcept { return options_.fixed == 0 && scale_ > options_.least; }

  // As one line for CheckpointInfo::extra, and back. A fixed one stays as it was made. corrupt: the text is none of
  // state()'s.
  std::string state() const;
  Status restore(std::string_view state);

 private:
  Options options_;
  double scale_;
  std::int64_t good_ = 0;     // steps in a row
  std::int64_t skipped_ = 0;  // since it grew last
};

}  // namespace v1
}  // namespace tutti::train
