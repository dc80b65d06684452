// tutti/pipeline/simulate.hpp - how long a pipeline's step takes, played in virtual time.
//
//   step      from the first forward to the end of the last op
//   compute   of the busiest rank: what the step would take without a bubble
//   bubble    step − compute. With stages that are alike and free transfers, p stages, m micro-batches,
//             F, B and W of a rank's whole stage (B: the input's part of backward, W the weights'):
//               gpipe, 1f1b     (p − 1)·(F + B + W)         (p − 1)/m of compute
//               interleaved     (p − 1)·(F + B + W)/v       (p − 1)/(v·m), where p divides m
//               zb-h1           (p − 1)·(F + B − W)         a third of 1f1b's if F = B = W; m ≥ p, W ≤ F, B
//
// Thread-safety  values and pure functions.
//
//   auto programs = build_pipeline(PipelineKind::zb_h1, {.stages = 4, .micro_batches = 8});
//   auto timeline = simulate_pipeline(*programs, {.places = {{1e-3, 1e-3, 1e-3}}});
//   timeline->bubble_s();
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "tutti/pipeline/schedule.hpp"

namespace tutti::pipeline {
inline namespace [[gnu::visibility("default")]] v1 {

// Of one place, for one micro-batch. A whole backward takes both parts.
struct PlaceDurations {
  double forward_s = 0;
  double backward_input_s = 0;
  double backward_weight_s = 0;
  double all_s() const noexcept { return forward_s + backward_input_s + backward_weight_s; }
};

struct PipelineDurations {
  std::vector<PlaceDurations>
      places;             // one: all are alike; else one for each, in the model's order
  double transfer_s = 0;  // of one message across a boundary
  // Whether messages travel while their ranks compute: each leaves when it is there to be sent, one
  // after the other between two ranks. Else ranks stop at each batch until all of it has met.
  bool overlap = true;
  // Of one message across each boundary, in the model's order; empty: all take transfer_s.
  std::vector<double> boundaries_s{};
};

// What was computed when, since the step began.
struct PipelineSlice {
  PipelineOpKind kind = PipelineOpKind::forward;
  int micro_batch = 0;
  int virtual_stage = 0;
  double begin_s = 0;
  double end_s = 0;
};

struct PipelineTimeline {
  std::vector<std::vector<PipelineSlice>> ranks;  // computing ops, in order
  std::vector<double> busy_s;                     // by rank
  double step_s = 0;

  double compute_s() const noexcept;                                   // of the busiest rank
  double bubble_s() const noexcept { return step_s - compute_s(); }    //
  double bubble_ratio() const noexcept { return ratio(compute_s()); }  // to compute
  double bubble_share() const noexcept { return ratio(step_s); }       // of the step

 private:
  double ratio(double of) const noexcept { return of > 0 ? bubble_s() / of : 0; }
};

// `programs` of all ranks. invalid_argument: durations that do not fit; internal: programs that get
// stuck.
Result<PipelineTimeline> simulate_pipeline(std::span<const PipelineProgram> programs,
                                           const PipelineDurations& durations);

// The closed form above, in seconds, for places that take as long as `place`; absent where it does not
// hold.
std::optional<double> uniform_bubble_s(PipelineKind kind, const PipelineShape& shape,
                                       const PlaceDurations& place);
// By how many messages' time a step is longer for transfers beside compute, if they are short beside an
// op; absent where that is not known.
//   gpipe        2·(p − 1), forward p − 1: filling and draining
//   1f1b         2·(p − 1 + ⌊(m − 1)·(p − 1)/p⌋): a message and its answer hold the stages up
//   zb-h1        as 1f1b, but 4·(p − 1) at most: weights fill the gaps
//   interleaved  2·(v·p − 1), where p divides m: other virtual stages fill them
std::optional<double> uniform_exposed_messages(PipelineKind kind, const PipelineShape& shape);

}  // namespace v1
}  // namespace tutti::pipeline
