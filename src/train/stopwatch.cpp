#include "train/stopwatch.hpp"

#include "core/clock.hpp"

namespace tutti::train {

std::int64_t now_ns() { return steady_clock().now().count(); }

std::string_view Stopwatch::name_of(StepPhase phase) {
  switch (phase) {
    case StepPhase::none: break;
    case StepPhase::forward: return "forward";
    case StepPhase::backward: return "backward";
    case StepPhase::update: return "update";
  }
  return "";
}

void Stopwatch::close_phase() {
  const std::int64_t now = now_ns();
  const std::int64_t spent = now - phase_begin_ - waited_;
  if (sink_ != nullptr && phase_ != StepPhase::none)
    sink_->compute(name_of(phase_), phase_begin_, now);
  switch (phase_) {
    case StepPhase::none: break;
    case StepPhase::forward:
      times_.forward += spent;
      if (!first_forward_done_) times_.first_forward = spent;
      first_forward_done_ = true;
      break;
    case StepPhase::backward:
      times_.backward += spent;
      times_.last_backward = spent;
      break;
    case StepPhase::update: times_.update += spent; break;
  }
  phase_ = StepPhase::none;
  phase_begin_ = now;
  waited_ = 0;
}

void Stopwatch::begin_micro_batch() {
  close_phase();
  if (times_.begin == 0) times_.begin = phase_begin_;
  phase_ = StepPhase::forward;
}

void Stopwatch::begin_backward() {
  close_phase();
  phase_ = StepPhase::backward;
}

void Stopwatch::end_backward() { close_phase(); }

void Stopwatch::begin_update() {
  close_phase();
  if (times_.begin == 0) times_.begin = phase_begin_;
  phase_ = StepPhase::update;
}

void Stopwatch::end_step(std::optional<std::int64_t> number, std::span<Pending* const> carried) {
  close_phase();
  times_.end = now_ns();
  if (sink_ != nullptr && number && times_.begin != 0)
    sink_->step(*number, times_.begin, times_.end);
  for (std::size_t i = 0; i < done_.size(); ++i) {
    // The callback of a collective that was waited for may still be on its way.
    const std::int64_t done = done_[i]->load(std::memory_order_acquire);
    times_.collectives[i].done = done != 0 ? done : times_.collectives[i].wait_end;
  }
  StepTimes next;
  std::vector<std::shared_ptr<std::atomic<std::int64_t>>> next_done;
  for (Pending* pending : carried) {
    next.collectives.push_back(times_.collectives[pending->record]);
    next_done.push_back(pending->done_ns);
    pending->record = next.collectives.size() - 1;
  }
  // Carried ones were noted last.
  times_.collectives.resize(times_.collectives.size() - carried.size());
  finished_ = std::exchange(times_, std::move(next));
  done_ = std::move(next_done);
  first_forward_done_ = false;
}

void Stopwatch::launch(Pending& pending, Collective collective, int bucket, std::size_t bytes,
                       const std::function<Work()>& start) {
  pending.done_ns = std::make_shared<std::atomic<std::int64_t>>(0);
  pending.record = times_.collectives.size();
  pending.waited = false;
  CollectiveTimes times;
  times.collective = collective;
  times.bucket = bucket;
  times.bytes = bytes;
  times.joined = now_ns();
  times_.collectives.push_back(times);
  done_.push_back(pending.done_ns);
  pending.work = start();
  pending.work.on_complete([done = pending.done_ns](const Status&) {
    done->store(now_ns(), std::memory_order_release);
  });
}

Status Stopwatch::await(Pending& pending) {
  if (pending.waited) return pending.work.status();
  pending.waited = true;
  const std::int64_t begin = now_ns();
  Status status = pending.work.wait();
  const std::int64_t end = now_ns();
  CollectiveTimes& times = times_.collectives[pending.record];
  times.wait_begin = begin;
  times.wait_end = end;
  waited_ += end - begin;
  return status;
}

}  // namespace tutti::train
