// train/stopwatch.hpp - writes down when a step's collectives and phases began and ended.
//
// Times are ns of the steady clock. Collectives that one step starts and the next one waits for
// (gathers beside the next forward) are carried over into that step's list.
#pragma once

#include <functional>
#include <optional>

#include "train/bucket.hpp"
#include "tutti/train/overlap.hpp"

namespace tutti::train {

std::int64_t now_ns();

class Stopwatch {
 public:
  // Phases and steps are noted there, too; null: nowhere.
  void trace_to(trace::Sink* sink) { sink_ = sink; }
  void begin_micro_batch();
  void begin_backward();
  void end_backward();
  void begin_update();
  // Ends the step. The trace shows it under this number; one that is to be computed again has none.
  // `carried`: collectives that belong to the next one.
  void end_step(std::optional<std::int64_t> number, std::span<Pending* const> carried);
  StepTimes take() { return std::move(finished_); }

  // Notes the start of a collective and follows it to its end.
  void launch(Pending& pending, Collective collective, int bucket, std::size_t bytes,
              const std::function<Work()>& start);
  // Waits for it, once.
  Status await(Pending& pending);

 private:
  void close_phase();

  enum class StepPhase { none, forward, backward, update };
  static std::string_view name_of(StepPhase phase);
  trace::Sink* sink_ = nullptr;
  StepTimes times_;
  StepTimes finished_;
  StepPhase phase_ = StepPhase::none;
  bool first_forward_done_ = false;
  std::int64_t phase_begin_ = 0;
  std::int64_t waited_ = 0;                                       // in this phase
  std::vector<std::shared_ptr<std::atomic<std::int64_t>>> done_;  // by collective
};

}  // namespace tutti::train
