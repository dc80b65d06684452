// train/stopwatch.hpp - writes down when a step's collectives and phases began and ended.
//
// Times are ns of the steady clock. Of what runs on a device they are known when it has come there: a
// step's times are worked out when they are asked for, or with the step after it.
// Collectives that one step starts and the next one waits for (gathers beside the next forward) are
// carried over into that step's list.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "train/bucket.hpp"
#include "tutti/train/overlap.hpp"

namespace tutti::train {

class Stopwatch {
 public:
  explicit Stopwatch(std::shared_ptr<Workplace> workplace) : workplace_(std::move(workplace)) {}
  // Phases and steps are noted there, too; null: nowhere.
  void trace_to(trace::Sink* sink) { sink_ = sink; }
  void begin_micro_batch();
  void begin_backward();
  void end_forward();
  void end_backward();
  void begin_update();
  // Ends the step. The trace shows it under this number; one that is to be computed again has none.
  // `carried`: collectives that belong to the next one.
  void end_step(std::optional<std::int64_t> number, std::span<Pending* const> carried);
  // Of the last step. Waits until the device is through with it.
  StepTimes take();

  // Notes the start of a collective and follows it to its end.
  enum class Side { host, workplace };  // whose memory it is on
  void launch(Pending& pending, Side side, Collective collective, int bucket, std::size_t bytes,
              const std::function<Work()>& start);
  // What comes next finds its result; once.
  Status await(Pending& pending);
  // How the collectives ended that a stream was made to wait for. Waits for their ends: to be called
  // when the stream has come past them.
  Status settle();

 private:
  enum class StepPhase { none, forward, backward, update };
  static std::string_view name_of(StepPhase phase);

  struct NotedCollective {
    CollectiveTimes times;
    Side side = Side::host;
    Moment joined, done, wait_begin, wait_end;
    std::shared_ptr<std::atomic<std::int64_t>> called_back;  // 0 until the callback ran
    bool waited = false;
  };
  struct NotedPhase {
    StepPhase phase = StepPhase::none;
    Moment begin, end;
    std::vector<std::pair<Moment, Moment>> waits;
  };
  struct NotedStep {
    std::optional<std::int64_t> number;
    std::optional<Moment> begin;
    Moment end;
    std::vector<NotedPhase> phases;
    std::vector<NotedCollective> collectives;
  };

  void open_phase(StepPhase phase);
  void close_phase();
  Moment now(Side side);
  void work_out();
  void add_phase(const NotedPhase& noted, StepTimes& times);
  CollectiveTimes times_of(const NotedCollective& noted);

  std::shared_ptr<Workplace> workplace_;
  trace::Sink* sink_ = nullptr;
  NotedStep step_;                 // under way
  std::optional<NotedStep> last_;  // over, and not worked out yet
  StepTimes finished_;
  NotedPhase phase_;
  std::vector<Work> unsettled_;
};

}  // namespace tutti::train
