#include "schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>
#include <sstream>

#include "flags.hpp"
#include "range.hpp"

namespace pretrain {

namespace train_ = tutti::train;
using tutti::Status;
using Words = std::map<std::string, std::string>;

namespace {

constexpr std::array<std::string_view, 3> kGrowths = {"constant", "linear", "cosine"};

template <class Number>
bool read(const Words& words, const char* name, Number& value) {
  const auto word = words.find(name);
  if (word == words.end()) return false;
  const char* end = word->second.data() + word->second.size();
  const auto result = std::from_chars(word->second.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
}

std::optional<WeightDecay> decay_of(const Words& words) {
  WeightDecay decay;
  if (read(words, "weight_decay", decay.end)) {
    decay.start = decay.end;
    return decay;
  }
  const auto style = words.find("weight_decay_incr_style");
  const auto parsed = style == words.end() ? std::nullopt : parse_decay_growth(style->second);
  if (!parsed || !read(words, "start_weight_decay", decay.start) ||
      !read(words, "end_weight_decay", decay.end) ||
      !read(words, "weight_decay_incr_iters", decay.steps))
    return std::nullopt;
  decay.style = *parsed;
  return decay;
}

BatchRamp ramp_of(const Words& words) {
  BatchRamp ramp;
  const auto word = words.find("rampup_batch_size");
  if (word == words.end()) return ramp;
  std::istringstream(word->second) >> ramp.start >> ramp.increment >> ramp.samples;
  return ramp;
}

}  // namespace

std::string_view to_string(DecayGrowth style) { return kGrowths[static_cast<std::size_t>(style)]; }

std::optional<DecayGrowth> parse_decay_growth(std::string_view word) {
  const auto found = std::find(kGrowths.begin(), kGrowths.end(), word);
  if (found == kGrowths.end()) return std::nullopt;
  return static_cast<DecayGrowth>(found - kGrowths.begin());
}

double WeightDecay::at(std::int64_t update) const {
  if (style == DecayGrowth::constant || update > steps) return end;
  const double share = static_cast<double>(update) / static_cast<double>(steps);
  const double grown =
      style == DecayGrowth::linear ? share : 0.5 * (std::cos(std::numbers::pi * (1 - share)) + 1);
  return start + grown * (end - start);
}

int BatchRamp::at(std::uint64_t consumed, int whole) const {
  if (start == 0 || consumed > static_cast<std::uint64_t>(samples)) return whole;
  const double each = static_cast<double>(samples) / ((whole - start) / increment);
  return std::min(whole,
                  start + static_cast<int>(static_cast<double>(consumed) / each) * increment);
}

Words to_words(const Schedule& schedule) {
  Words words = train_::to_words(schedule.rate);
  const WeightDecay& decay = schedule.decay;
  if (decay.style == DecayGrowth::constant) {
    words["weight_decay"] = fmt::format("{}", decay.end);
  } else {
    words["start_weight_decay"] = fmt::format("{}", decay.start);
    words["end_weight_decay"] = fmt::format("{}", decay.end);
    words["weight_decay_incr_style"] = to_string(decay.style);
    words["weight_decay_incr_iters"] = fmt::format("{}", decay.steps);
  }
  if (const BatchRamp& ramp = schedule.ramp; ramp.start > 0)
    words["rampup_batch_size"] = fmt::format("{} {} {}", ramp.start, ramp.increment, ramp.samples);
  return words;
}

std::optional<Schedule> schedule_of(const Words& words, const Schedule& here) {
  const auto rate = train_::learning_rate_of(words);
  if (!rate) return std::nullopt;
  return Schedule{*rate, decay_of(words).value_or(here.decay), ramp_of(words)};
}

Schedule Flags::schedule() const {
  Schedule schedule;
  train_::LearningRate& rate = schedule.rate;
  rate.lr = lr;
  rate.min_lr = min_lr;
  rate.decay_steps = lr_decay_iters > 0 ? lr_decay_iters : train_iters;
  rate.warmup_init = lr_warmup_init;
  rate.warmup_steps =
      lr_warmup_fraction ? std::llround(*lr_warmup_fraction * static_cast<double>(rate.decay_steps))
                         : lr_warmup_iters;
  rate.style = train_::parse_decay_style(lr_decay_style).value_or(train_::DecayStyle::constant);
  rate.wsd_steps = lr_wsd_decay_iters;
  rate.wsd_style =
      train_::parse_wsd_style(lr_wsd_decay_style).value_or(train_::WsdStyle::exponential);
  const auto growth = parse_decay_growth(weight_decay_incr_style).value_or(DecayGrowth::constant);
  schedule.decay = {start_weight_decay.value_or(weight_decay),
                    end_weight_decay.value_or(weight_decay), train_iters, growth};
  if (rampup_batch_size.size() >= 3) {
    const auto* last = &rampup_batch_size.back();  // said twice, the last one counts
    schedule.ramp = {static_cast<int>(last[-2]), static_cast<int>(last[-1]), last[0]};
  }
  return schedule;
}

// ---- flags

void add_schedule(CLI::App& app, Flags& flags) {
  const char* group = "Schedules";
  const auto rate = real({.least = 0, .most = 1000});
  app.add_option("--lr", flags.lr, "Largest learning rate")
      ->check(real({.least = 0, .most = 1000, .above = true}))
      ->group(group);
  app.add_option("--min-lr", flags.min_lr, "Smallest one")->check(rate)->group(group);
  app.add_option("--lr-decay-style", flags.lr_decay_style,
                 "constant, linear, cosine, inverse-square-root, or WSD: warm-up, stable, decay")
      ->group(group);
  app.add_option("--lr-decay-iters", flags.lr_decay_iters, "Where --min-lr is reached; 0: the end")
      ->check(whole(0, kMostIterations))
      ->group(group);
  app.add_option("--lr-warmup-iters", flags.lr_warmup_iters, "Steps of linear growth")
      ->check(whole(0, kMostIterations))
      ->group(group);
  app.add_option("--lr-warmup-fraction", flags.lr_warmup_fraction,
                 "The same as a share of --lr-decay-iters, to the nearest step")
      ->check(real({.least = 0, .most = 1}))
      ->group(group);
  app.add_option("--lr-warmup-init", flags.lr_warmup_init, "Where it begins to grow")
      ->check(rate)
      ->group(group);
  app.add_option("--lr-wsd-decay-iters", flags.lr_wsd_decay_iters,
                 "Of WSD: the last so many of --lr-decay-iters fall to --min-lr")
      ->check(whole(0, kMostIterations))
      ->group(group);
  app.add_option("--lr-wsd-decay-style", flags.lr_wsd_decay_style,
                 "How they fall: exponential, linear, cosine or minus_sqrt")
      ->check(CLI::IsMember({"exponential", "linear", "cosine", "minus_sqrt"}))
      ->group(group);
  app.add_option("--weight-decay", flags.weight_decay, "Not for biases and norms")
      ->check(rate)
      ->group(group);
  app.add_option("--start-weight-decay", flags.start_weight_decay, "Where a growing one begins")
      ->check(rate)
      ->group(group);
  app.add_option("--end-weight-decay", flags.end_weight_decay, "And ends, at --train-iters")
      ->check(rate)
      ->group(group);
  app.add_option("--weight-decay-incr-style", flags.weight_decay_incr_style,
                 "How it grows: constant (not at all), linear or cosine")
      ->check(CLI::IsMember({"constant", "linear", "cosine"}))
      ->group(group);
  app.add_option(
         "--rampup-batch-size", flags.rampup_batch_size,
         "START INCREMENT SAMPLES: the global batch begins with START sequences and grows by "
         "INCREMENT, in equal parts of the first SAMPLES sequences")
      ->expected(3)
      ->check(whole(1, 1 << 30))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->default_str("")
      ->group(group);
  app.add_flag("--override-opt-param-scheduler", flags.override_schedule,
               "With --load: these schedules, whatever the checkpoint was trained with")
      ->group(group);
  app.add_flag("--use-checkpoint-opt-param-scheduler", flags.use_checkpoint_schedule,
               "With --load: the checkpoint's schedules, whatever is said here")
      ->group(group);
}

namespace {

Status check_rate(const Flags& flags) {
  const train_::LearningRate rate = flags.schedule().rate;
  if (flags.min_lr > flags.lr)
    return misfit(fmt::format("--min-lr {} is larger than --lr {}", flags.min_lr, flags.lr));
  if (!train_::parse_decay_style(flags.lr_decay_style))
    return misfit(
        fmt::format("--lr-decay-style '{}' is none of constant, linear, cosine, "
                    "inverse-square-root, WSD",
                    flags.lr_decay_style));
  if (flags.lr_warmup_fraction && flags.lr_warmup_iters > 0)
    return misfit("--lr-warmup-fraction and --lr-warmup-iters say the same: give one of them");
  if (flags.lr_warmup_init > 0 && rate.warmup_steps == 0)
    return misfit("--lr-warmup-init needs --lr-warmup-iters or --lr-warmup-fraction");
  if (flags.lr_warmup_init > flags.lr)
    return misfit(
        fmt::format("--lr-warmup-init {} is larger than --lr {}", flags.lr_warmup_init, flags.lr));
  const bool is_wsd = rate.style == train_::DecayStyle::wsd;
  if (is_wsd != (flags.lr_wsd_decay_iters > 0))
    return misfit(is_wsd ? "--lr-decay-style WSD needs --lr-wsd-decay-iters"
                         : "--lr-wsd-decay-iters needs --lr-decay-style WSD");
  if (is_wsd && flags.lr_wsd_decay_iters > rate.decay_steps - rate.warmup_steps)
    return misfit(
        fmt::format("--lr-wsd-decay-iters {} and {} steps of warm-up are more than the {} of {}",
                    flags.lr_wsd_decay_iters, rate.warmup_steps, rate.decay_steps,
                    flags.lr_decay_iters > 0 ? "--lr-decay-iters" : "--train-iters"));
  return {};
}

Status check_decay(const Flags& flags) {
  const bool grows = flags.weight_decay_incr_style != "constant";
  if (grows != flags.start_weight_decay.has_value() || grows != flags.end_weight_decay.has_value())
    return misfit(grows ? fmt::format("--weight-decay-incr-style {} needs --start-weight-decay and "
                                      "--end-weight-decay",
                                      flags.weight_decay_incr_style)
                        : "--start-weight-decay and --end-weight-decay need "
                          "--weight-decay-incr-style linear or cosine");
  if (grows && *flags.start_weight_decay > *flags.end_weight_decay)
    return misfit(fmt::format("--start-weight-decay {} is larger than --end-weight-decay {}",
                              *flags.start_weight_decay, *flags.end_weight_decay));
  return {};
}

}  // namespace

Status check_schedule(const Flags& flags) {
  if (Status status = check_rate(flags); !status.ok()) return status;
  if (Status status = check_decay(flags); !status.ok()) return status;
  if (flags.rampup_batch_size.size() % 3 != 0)
    return misfit("--rampup-batch-size takes three numbers: START INCREMENT SAMPLES");
  if (flags.predict && !flags.rampup_batch_size.empty())
    return misfit("--predict foretells steps that are alike: not with --rampup-batch-size");
  if (flags.override_schedule && flags.use_checkpoint_schedule)
    return misfit(
        "--override-opt-param-scheduler and --use-checkpoint-opt-param-scheduler contradict each "
        "other");
  return {};
}

Status check_ramp(const BatchRamp& ramp, int whole, std::int64_t at_once) {
  if (ramp.start == 0) return {};
  const std::string said =
      fmt::format("--rampup-batch-size {} {} {}", ramp.start, ramp.increment, ramp.samples);
  if (ramp.start >= whole || (whole - ramp.start) % ramp.increment != 0)
    return misfit(fmt::format("{}: steps of {} do not lead from {} up to --global-batch-size {}",
                              said, ramp.increment, ramp.start, whole));
  if (ramp.start % at_once != 0 || ramp.increment % at_once != 0)
    return misfit(fmt::format("{}: {} and {} are not both multiples of {}", said, ramp.start,
                              ramp.increment, at_once));
  return {};
}

}  // namespace pretrain
