#include "tutti/plan/timeline.hpp"

#include <algorithm>
#include <limits>

namespace tutti::plan {
inline namespace v1 {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double sum_of(std::span<const Transfer> transfers) {
  double sum = 0;
  for (const Transfer& transfer : transfers) sum += transfer.seconds;
  return sum;
}

// Compute and one channel that run side by side, each slower while the other runs too.
class Lanes {
 public:
  Lanes(std::span<const Transfer> transfers, Pace pace) : transfers_(transfers), pace_(pace) {
    next_transfer();
  }

  bool channel_busy() const { return current_ < released_; }
  std::size_t finished() const { return current_; }
  double now() const { return now_; }
  double busy() const { return busy_; }
  void release(std::size_t count) { released_ = std::max(released_, count); }

  // Until `work` seconds of compute are done, or a transfer has ended. Returns the work done.
  double run_compute(double work) {
    const bool both = channel_busy();
    const double rate = both ? pace_.compute : 1;
    const double until_end = both ? left_ / pace_.channel : kNever;
    const double span = std::min(work / rate, until_end);
    now_ += span;
    if (both) {
      busy_ += span;
      advance_channel(span * pace_.channel, until_end <= work / rate);
    }
    return until_end < work / rate ? span * rate : work;
  }
  // The channel alone, until the transfer under way has ended.
  void run_channel() {
    now_ += left_;
    busy_ += left_;
    advance_channel(left_, true);
  }

 private:
  void next_transfer() { left_ = current_ < transfers_.size() ? transfers_[current_].seconds : 0; }
  void advance_channel(double work, bool ends) {
    left_ -= work;
    if (!ends) return;
    ++current_;
    next_transfer();
  }

  std::span<const Transfer> transfers_;
  Pace pace_;
  std::size_t released_ = 0;  // transfers that may run
  std::size_t current_ = 0;   // under way, or the next one
  double left_ = 0;           // of it
  double now_ = 0;
  double busy_ = 0;
};

// The gathers begin while the update still runs. Its end belongs to the update, not to forward.
Hidden hide_gathers_early(const StepShape& shape, std::span<const Transfer> gathers) {
  std::vector<Transfer> later(gathers.begin(), gathers.end());
  for (Transfer& transfer : later) transfer.at_s += shape.head_start_s;
  Hidden hidden = hide_gathers(shape.head_start_s + shape.first_forward_s, later, shape.pace);
  hidden.end_s -= shape.head_start_s;
  return hidden;
}

}  // namespace

Hidden hide_reductions(double compute_s, std::span<const Transfer> transfers, Pace pace) {
  Lanes lanes(transfers, pace);
  double done = 0;
  for (std::size_t next = 0; next < transfers.size(); ++next) {
    const double ready = std::clamp(transfers[next].at_s, done, std::max(done, compute_s));
    while (done < ready) done += lanes.run_compute(ready - done);
    lanes.release(next + 1);
  }
  while (done < compute_s) done += lanes.run_compute(compute_s - done);
  const double compute_end = lanes.now();
  while (lanes.channel_busy()) lanes.run_channel();
  return {lanes.busy(), lanes.now() - compute_end, compute_end - compute_s, lanes.now()};
}

Hidden hide_gathers(double compute_s, std::span<const Transfer> transfers, Pace pace) {
  Lanes lanes(transfers, pace);
  lanes.release(transfers.size());
  double done = 0;
  double exposed = 0;
  for (std::size_t next = 0; next < transfers.size(); ++next) {
    const double needed = std::clamp(transfers[next].at_s, done, std::max(done, compute_s));
    while (done < needed) done += lanes.run_compute(needed - done);
    const double stall_begin = lanes.now();
    while (lanes.finished() <= next) lanes.run_channel();
    exposed += lanes.now() - stall_begin;
  }
  while (done < compute_s) done += lanes.run_compute(compute_s - done);
  return {lanes.busy(), exposed, lanes.now() - exposed - compute_s, lanes.now()};
}

double exposed_of_uniform(double communication_s, double backward_s, int buckets, double alpha_s) {
  const double k = std::max(buckets, 1);
  return std::max(communication_s / k + alpha_s,
                  communication_s + k * alpha_s - backward_s * (1 - 1 / k));
}

StepPrediction predict_step(const StepShape& shape, std::span<const Transfer> reductions,
                            std::span<const Transfer> gathers) {
  const double reduce_s = sum_of(reductions);
  const double gather_s = sum_of(gathers);
  StepPrediction result;
  result.reductions = shape.overlap_reductions
                          ? hide_reductions(shape.last_backward_s, reductions, shape.pace)
                          : Hidden{reduce_s, reduce_s, 0, shape.last_backward_s + reduce_s};
  result.gathers = shape.overlap_gathers
                       ? hide_gathers_early(shape, gathers)
                       : Hidden{gather_s, gather_s, 0, shape.first_forward_s + gather_s};
  result.step_s = result.gathers.end_s + shape.other_s + result.reductions.end_s + shape.control_s +
                  shape.update_s;
  result.exposed_s = result.reductions.exposed_s + result.gathers.exposed_s + shape.control_s;
  result.wire_s = result.reductions.wire_s + result.gathers.wire_s + shape.control_s;
  if (result.wire_s > 0) result.hidden = std::clamp(1 - result.exposed_s / result.wire_s, 0.0, 1.0);
  const double tail = reductions.empty() ? 0 : reductions.back().seconds;
  result.bound_s = std::max(shape.first_forward_s, gather_s) +
                   std::max(shape.last_backward_s, reduce_s - tail) + tail + shape.other_s +
                   shape.update_s;
  const double plain = shape.first_forward_s + shape.last_backward_s + shape.other_s +
                       shape.update_s + shape.control_s + reduce_s + gather_s;
  const double can_hide =
      std::min(shape.first_forward_s, gather_s) + std::min(shape.last_backward_s, reduce_s);
  result.most_gain = plain > 0 ? can_hide / plain : 0;
  return result;
}

}  // namespace v1
}  // namespace tutti::plan
