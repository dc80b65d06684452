// tutti/plan/timeline.hpp - what of a step's communication its compute hides, bucket by bucket.
//
//   backward   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓┃            ready: when a bucket's last gradient is there
//   channel        ═0═══  ═1═══  ═2═══  ═══3══      start = max(ready, end of the one before)
//                                      └exposed┘
//   gathers    ═3══════ ═2═══ ═1═══ ═0═══           queued at once, in the order of use
//   forward    └stall──┘▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓┃        a layer waits until its weights are there
//
// One channel carries everything, one after the other. Where communication runs on the cores that
// compute (no accelerator), `Pace` says how much both slow down while both run.
//
// Thread-safety  values and pure functions.
#pragma once

#include <span>
#include <vector>

#include "tutti/cpp20.hpp"

namespace tutti::plan {
inline namespace [[gnu::visibility("default")]] v1 {

// Of full speed, while compute and channel are both busy. {1, 1}: neither feels the other.
struct Pace {
  double compute = 1;
  double channel = 1;
};

// A transfer in the channel, and the point of compute that it depends on.
struct Transfer {
  double at_s = 0;     // reductions: compute after which it may start; gathers: before it is needed
  double seconds = 0;  // alone on the channel
};

struct Hidden {
  double wire_s = 0;  // time in which the channel is busy: the transfers' sum, longer where slowed
  double exposed_s = 0;  // time in which compute waits for the channel, or the step for its end
  double stolen_s = 0;   // by which compute got longer, because the channel took of its cores
  double end_s = 0;      // compute + stolen + exposed
};

// Reductions beside `compute_s` of backward, in the order in which they are launched.
Hidden hide_reductions(double compute_s, std::span<const Transfer> transfers, Pace pace = {});
// Gathers beside `compute_s` of forward, all queued when it begins, in the order of use.
Hidden hide_gathers(double compute_s, std::span<const Transfer> transfers, Pace pace = {});

// The closed form for k uniform buckets, each with a start of alpha_s:
//   exposed(k) = max(t_c/k + α, t_c + kα − t_b(1 − 1/k))
double exposed_of_uniform(double communication_s, double backward_s, int buckets, double alpha_s);

// A data-parallel step as one rank sees it.
struct StepShape {
  double first_forward_s = 0;  // can hide gathers
  double last_backward_s = 0;  // can hide reductions
  double other_s = 0;          // other micro-batches' forward and backward
  double update_s = 0;
  double head_start_s = 0;  // end of the update, during which gathers are on their way already
  double control_s = 0;     // an all_reduce that nothing hides (norm, decision)
  bool overlap_reductions = true;
  bool overlap_gathers = true;
  Pace pace;
};

struct StepPrediction {
  Hidden reductions;
  Hidden gathers;
  double step_s = 0;
  double exposed_s = 0;  // reductions, gathers and control
  double wire_s = 0;
  double hidden = 1;     // share: 1 − exposed / wire
  double bound_s = 0;    // max(forward, gathers) + max(backward, reductions but the last) + …
  double most_gain = 0;  // share of a step without overlap that overlap can save at most
};

// `reductions` by readiness, `gathers` by first use (empty: none).
StepPrediction predict_step(const StepShape& shape, std::span<const Transfer> reductions,
                            std::span<const Transfer> gathers);

}  // namespace v1
}  // namespace tutti::plan
