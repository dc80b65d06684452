// apps/pretrain_gpt/step_log.hpp - from a step's numbers on each rank to rank 0's report.
//
// Loss and tokens are summed by the metrics bus, times compared by the overlap meter; both travel
// while the next step computes. The line of step s is there by the end of step s + 1, or at once
// without --async-log-allreduce; its values are the same.
//
// Ordering       every method is collective.
// Failure        a loss that is not finite ends the run here, one step late, unless it was judged
//                with the step (--strict-loss-check).
#pragma once

#include <deque>
#include <memory>

#include "pass_sums.hpp"
#include "report.hpp"
#include "split.hpp"
#include "tutti/train/loss_guard.hpp"
#include "tutti/train/metrics_bus.hpp"
#include "tutti/train/overlap.hpp"

namespace pretrain {

// What this rank knows when a step is over.
struct StepFacts {
  std::int64_t step = 0;
  PassSums sums;
  int sequences = 0;  // of the global batch
  double lr = 0;
  double weight_decay = 0;
  double loss_scale = 0;  // 0: there is none
  tutti::train::StepReport report;
  tutti::train::StepTimes times;
};

class StepLog {
 public:
  // `report` is null but on rank 0; both are lent.
  static tutti::Result<std::unique_ptr<StepLog>> create(const Split& split, bool asynchronous,
                                                        TrainingReport* report,
                                                        tutti::train::LossGuard* guard);
  tutti::Status publish(const StepFacts& facts);
  // Everything published is told.
  tutti::Status flush();
  // The failure was the guard's verdict, which every rank reaches for itself.
  bool stopped_by_guard() const { return stopped_by_guard_; }

 private:
  tutti::Status tell_oldest();

  int rank_ = 0;
  int ranks_ = 1;
  bool tells_loss_ = true;
  bool asynchronous_ = false;
  TrainingReport* report_ = nullptr;
  tutti::trace::Sink* trace_ = nullptr;  // rank 0's
  tutti::train::LossGuard* guard_ = nullptr;
  std::unique_ptr<tutti::train::MetricsBus> bus_;
  std::unique_ptr<tutti::train::OverlapMeter> meter_;
  std::deque<StepLine> under_way_;  // what is alike on all ranks and needs no sum
  std::int64_t now_ = 0;
  bool stopped_by_guard_ = false;
};

}  // namespace pretrain
