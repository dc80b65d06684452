#include "precision.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>

#include "flags.hpp"
#include "range.hpp"

namespace pretrain {

void add_precision(CLI::App& app, Flags& flags) {
  const char* group = "Precision";
  const auto scale = [] { return real({.least = 0, .most = 1e30}); };
  app.add_flag("--bf16", flags.bf16, "bf16 weights; gradients and main weights in f32")
      ->group(group);
  app.add_flag("--fp16", flags.fp16,
               "f16 weights; gradients and main weights in f32, and the loss is scaled")
      ->group(group);
  app.add_option("--loss-scale", flags.fixed_loss_scale,
                 "Of fp16: always that; 0: as large as gradients bear")
      ->check(scale())
      ->group(group);
  app.add_option("--initial-loss-scale", flags.loss_scale.initial, "Where it begins")
      ->check(real({.least = 0, .most = 1e30, .above = true}))
      ->group(group);
  app.add_option("--min-loss-scale", flags.loss_scale.least, "Not below that")
      ->check(real({.least = 0, .most = 1e30, .above = true}))
      ->group(group);
  app.add_option("--loss-scale-window", flags.loss_scale.window,
                 "Doubled after so many steps without a skip")
      ->check(whole(1, kMostIterations))
      ->group(group);
  app.add_option("--hysteresis", flags.loss_scale.hysteresis,
                 "Skips that it takes without being halved are one less than that")
      ->check(whole(1, 1 << 20))
      ->group(group);
  app.add_flag("--grad-reduce-in-bf16", flags.grad_reduce_in_bf16,
               "Gradients cross the ranks in bf16 and are summed in f32")
      ->group(group);
}

tutti::Status check_precision(const Flags& flags) {
  if (flags.bf16 && flags.fp16) return misfit("--bf16 and --fp16 do not go together");
  if (!flags.fp16 && flags.fixed_loss_scale > 0)
    return misfit(fmt::format("--loss-scale {} needs --fp16", flags.fixed_loss_scale));
  if (flags.loss_scale.least > flags.loss_scale.initial)
    return misfit(fmt::format("--min-loss-scale {} is larger than --initial-loss-scale {}",
                              flags.loss_scale.least, flags.loss_scale.initial));
  if (flags.fp16 && flags.fixed_loss_scale == 0 && flags.check_for_nan)
    return misfit(
        "--check-for-nan-in-loss-and-grad and --fp16 go together with a --loss-scale only: "
        "gradients that are not finite are how a scale that is too large is found");
  return {};
}

tutti::Dtype weight_dtype(const Flags& flags) {
  using tutti::Dtype;
  return flags.fp16 ? Dtype::f16 : flags.bf16 ? Dtype::bf16 : Dtype::f32;
}

const char* precision_name(const Flags& flags) {
  return flags.fp16 ? "fp16" : flags.bf16 ? "bf16" : "fp32";
}

tutti::train::LossScale loss_scale_of(const Flags& flags) {
  auto options = flags.loss_scale;
  options.fixed = flags.fixed_loss_scale;
  return tutti::train::LossScale(options);
}

LossFactor loss_factor(const Flags& flags, const tutti::train::LossScale& scale) {
  if (!flags.fp16) return {};
  const double tokens = double(flags.global_batch_size) * flags.seq_length;
  // As f32, in which the loss is multiplied: gradients are divided by the very same number.
  const auto factor = static_cast<float>(scale.value() / std::exp2(std::ceil(std::log2(tokens))));
  return {scale.value(), factor};
}

}  // namespace pretrain
