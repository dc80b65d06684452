// tutti/train/loss_guard.hpp - what to do about a loss or gradient that cannot be right.
//
// NaN or Inf: the step is computed once more from the same state. If that goes well the fault was
// *transient*, and training goes on; if not it is *persistent*, and the run ends before the update,
// with rank, step and bucket or parameter named on every rank. Without that check such a step is skipped;
// too many in a row end the run, as nothing is learned any more. A *spiky* loss (at least ten times the
// largest of the first hundred) is only warned about.
//
// A pure state machine: it sees StepReports, which are alike on all ranks, so its verdicts are too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"
#include "tutti/train/data_parallel.hpp"

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

class LossGuard {
 public:
  struct Options {
    bool check_for_nan = false;      // --check-for-nan-in-loss-and-grad
    bool strict = false;             // --strict-loss-check: loss flag decides with the step
    bool check_for_spikes = false;   // --check-for-spiky-loss
    std::int64_t most_skipped = 10;  // steps in a row; the run ends with the last of them
  };
  explicit LossGuard(Options options) : options_(options) {}

  enum class Verdict : std::uint8_t { go_on, recompute, stop };
  struct Judgement {
    Verdict verdict = Verdict::go_on;
    std::string text;  // for the user; empty when there is nothing to say
    Status status;     // of a stop
  };
  // Of one attempt at a step. `may_skip`: that steps are skipped is how a scale of the loss is found
  // (LossScale::may_fall); those do not end the run.
  Judgement judge(std::int64_t step, const StepReport& report, bool may_skip = false);
  // Of a mean loss that came with the metrics bus, when `now` is the current step: not finite is a
  // stop that says how late it came; a spike is told.
  Judgement judge_loss(std::int64_t step, std::int64_t now, double mean_loss,
                       const std::vector<int>& ranks_at_fault);

  // What it has seen so far, as one line for CheckpointInfo::extra, and back: a run that goes on
  // measures spikes by the same yardstick. corrupt: the text is none of state()'s.
  std::string state() const;
  Status restore(std::string_view state);

  std::int64_t skipped() const noexcept { return skipped_; }
  std::int64_t transient() const noexcept { return transient_; }

 private:
  Judgement judge_skipped(std::int64_t step, const StepReport& report, bool may_skip);
  Judgement judge_first(std::int64_t step, const StepReport& report);
  Judgement judge_second(std::int64_t step, const StepReport& report);
  Judgement judge_bad_loss(std::int64_t step, std::int64_t now, double mean_loss,
                           const std::vector<int>& ranks) const;

  Options options_;
  std::int64_t recomputing_ = -1;  // the step that was asked to be computed again
  std::string first_fault_;
  std::int64_t skipped_ = 0;
  std::int64_t skipped_in_a_row_ = 0;
  std::int64_t transient_ = 0;
  std::int64_t samples_ = 0;
  double largest_ = 0;
};

}  // namespace v1
}  // namespace tutti::train
