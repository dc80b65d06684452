#include "tutti/train/loss_guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "train/take_number.hpp"

namespace tutti::train {
inline namespace v1 {
namespace {

constexpr std::int64_t kSamples = 100;  // whose largest is the yardstick
constexpr double kSpike = 10;           // times that

// Where a model is cut over ranks, a rank's number alone does not say who it is.
std::string data_group_of(const Fault& fault) {
  if (fault.data_group < 0) return "";
  if (!fault.part.empty()) return fmt::format(" of the data group of {}", fault.part);
  return fmt::format(" of the data group that rank {} of everyone is in", fault.data_group);
}

// "rank 2: gradient of 'decoder.weight' (bucket 3)"
std::string describe(const Fault& fault) {
  if (fault.is_loss) return fmt::format("rank {}{}: loss", fault.rank, data_group_of(fault));
  if (fault.parameter.empty()) return "several ranks that share a place in the report";
  std::string who =
      fault.rank >= 0 ? fmt::format("rank {}", fault.rank) : "found after the reduction";
  who += data_group_of(fault);
  return fmt::format("{}: gradient of '{}' (bucket {})", who, fault.parameter, fault.bucket);
}

std::string describe(const std::vector<Fault>& faults) {
  if (faults.empty()) return "nobody named";
  std::string text;
  for (const Fault& fault : faults) text += (text.empty() ? "" : "; ") + describe(fault);
  return text;
}

// "rank 3", "ranks 0, 2", or "an unknown rank".
std::string list(const std::vector<int>& ranks) {
  if (ranks.empty()) return "an unknown rank";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  return text;
}

LossGuard::Judgement go_on(std::string text) {
  return {LossGuard::Verdict::go_on, std::move(text), {}};
}

LossGuard::Judgement stop(const std::string& text) {
  return {LossGuard::Verdict::stop, text, Status(Code::aborted, text)};
}

}  // namespace

LossGuard::Judgement LossGuard::judge(std::int64_t step, const StepReport& report, bool may_skip) {
  const bool again = recomputing_ == step;
  if (report.outcome == Outcome::rejected)
    return again ? judge_second(step, report) : judge_first(step, report);
  recomputing_ = -1;
  if (report.outcome == Outcome::skipped) return judge_skipped(step, report, may_skip);
  if (report.outcome == Outcome::updated) skipped_in_a_row_ = 0;
  if (report.outcome == Outcome::empty)
    return go_on(fmt::format(
        "step {} has nothing to learn from, because every token of all ranks is masked: "
        "nothing was changed",
        step));
  if (!again) return {};
  ++transient_;
  return go_on(
      fmt::format("step {} went well when it was computed again: the fault was transient "
                  "({}); {} so far. If they go on, suspect the hardware",
                  step, first_fault_, transient_));
}

std::string LossGuard::state() const {
  return fmt::format("samples {} largest {} skipped {} transient {}", samples_, largest_, skipped_,
                     transient_);
}

Status LossGuard::restore(std::string_view state) {
  LossGuard seen(options_);
  if (!(take_number(state, "samples ", seen.samples_) &&
        take_number(state, " largest ", seen.largest_) &&
        take_number(state, " skipped ", seen.skipped_) &&
        take_number(state, " transient ", seen.transient_) && state.empty()))
    return {Code::corrupt, "the state of the loss guard cannot be read"};
  *this = seen;
  return {};
}

LossGuard::Judgement LossGuard::judge_skipped(std::int64_t step, const StepReport& report,
                                              bool may_skip) {
  ++skipped_;
  if (!may_skip && ++skipped_in_a_row_ >= options_.most_skipped)
    return stop(
        fmt::format("{} steps in a row, up to step {}, were skipped, because gradients were not "
                    "finite: {}. Nothing is learned any more, so the run ends; continue from the "
                    "last checkpoint with a smaller learning rate or other data",
                    skipped_in_a_row_, step, describe(report.faults)));
  return go_on(
      fmt::format("step {} was skipped on all ranks, because a gradient was not finite: "
                  "{}; {} skipped so far",
                  step, describe(report.faults), skipped_));
}

LossGuard::Judgement LossGuard::judge_first(std::int64_t step, const StepReport& report) {
  recomputing_ = step;
  first_fault_ = describe(report.faults);
  return {Verdict::recompute,
          fmt::format("step {} is not finite and is computed once more: {}", step, first_fault_),
          {}};
}

LossGuard::Judgement LossGuard::judge_second(std::int64_t step, const StepReport& report) {
  const std::string second = describe(report.faults);
  const std::string first =
      second == first_fault_ ? "" : fmt::format(" (the first time: {})", first_fault_);
  return stop(
      fmt::format("step {} is not finite, also when computed again, so the fault is "
                  "persistent: {}{}. The run ends before the update; continue from the "
                  "last checkpoint with other data or a smaller learning rate",
                  step, second, first));
}

LossGuard::Judgement LossGuard::judge_loss(std::int64_t step, std::int64_t now, double mean_loss,
                                           const std::vector<int>& ranks_at_fault) {
  if (!std::isfinite(mean_loss))
    return options_.check_for_nan ? judge_bad_loss(step, now, mean_loss, ranks_at_fault)
                                  : Judgement{};
  if (!options_.check_for_spikes) return {};
  const double size = std::fabs(mean_loss);
  if (samples_ < kSamples) {
    ++samples_;
    largest_ = std::max(largest_, size);
    return {};
  }
  if (size == 0 || size < kSpike * largest_) return {};
  return go_on(
      fmt::format("the loss of step {} is spiky: {} is at least {} times {}, the largest "
                  "of the first {}",
                  step, mean_loss, kSpike, largest_, kSamples));
}

LossGuard::Judgement LossGuard::judge_bad_loss(std::int64_t step, std::int64_t now,
                                               double mean_loss,
                                               const std::vector<int>& ranks) const {
  std::string text = fmt::format("the loss of step {} is {} on {}", step, mean_loss, list(ranks));
  if (const std::int64_t late = now - step; late > 0)
    text += fmt::format("; this arrived {} step{} late, and the weights were updated meanwhile",
                        late, late == 1 ? "" : "s");
  text += ". Continue from the last checkpoint";
  if (!options_.strict) text += "; --strict-loss-check stops before the update";
  return stop(text);
}

}  // namespace v1
}  // namespace tutti::train
