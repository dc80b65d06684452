#include "train/stopwatch.hpp"

#include <algorithm>

namespace tutti::train {

std::string_view Stopwatch::name_of(StepPhase phase) {
  switch (phase) {
    case StepPhase::none: break;
    case StepPhase::forward: return "forward";
    case StepPhase::backward: return "backward";
    case StepPhase::update: return "update";
  }
  return "";
}

// ---- noting

Moment Stopwatch::now(Side side) {
  return side == Side::workplace ? workplace_->now() : Moment{now_ns(), nullptr};
}

void Stopwatch::close_phase() {
  if (phase_.phase == StepPhase::none) return;
  phase_.end = workplace_->now();
  if (sink_ != nullptr && workplace_->device() == Device::cpu)
    sink_->compute(name_of(phase_.phase), phase_.begin.ns, phase_.end.ns);
  step_.phases.push_back(std::exchange(phase_, {}));
}

void Stopwatch::open_phase(StepPhase phase) {
  close_phase();
  phase_.phase = phase;
  phase_.begin = workplace_->now();
  if (!step_.begin && phase != StepPhase::backward) step_.begin = phase_.begin;
}

void Stopwatch::begin_micro_batch() { open_phase(StepPhase::forward); }
void Stopwatch::begin_backward() { open_phase(StepPhase::backward); }
void Stopwatch::end_forward() { close_phase(); }
void Stopwatch::end_backward() { close_phase(); }
void Stopwatch::begin_update() { open_phase(StepPhase::update); }

void Stopwatch::launch(Pending& pending, Side side, Collective collective, int bucket,
                       std::size_t bytes, const std::function<Work()>& start) {
  pending.record = step_.collectives.size();
  pending.waited = false;
  NotedCollective noted;
  noted.side = side;
  noted.times.collective = collective;
  noted.times.bucket = bucket;
  noted.times.bytes = bytes;
  noted.joined = now(side);
  noted.called_back = std::make_shared<std::atomic<std::int64_t>>(0);
  pending.work = start();
  pending.work.on_complete([done = noted.called_back](const Status&) {
    done->store(now_ns(), std::memory_order_release);
  });
  if (side == Side::workplace) noted.done = workplace_->end_of(pending.work);
  step_.collectives.push_back(std::move(noted));
}

Status Stopwatch::await(Pending& pending) {
  if (pending.waited) return pending.work.status();
  pending.waited = true;
  NotedCollective& noted = step_.collectives[pending.record];
  noted.waited = true;
  noted.wait_begin = now(noted.side);
  Status status =
      noted.side == Side::workplace ? workplace_->await(pending.work) : pending.work.wait();
  noted.wait_end = now(noted.side);
  if (phase_.phase != StepPhase::none) phase_.waits.emplace_back(noted.wait_begin, noted.wait_end);
  if (!pending.work.done()) unsettled_.push_back(pending.work);
  return status;
}

Status Stopwatch::settle() {
  Status first;
  for (Work& work : std::exchange(unsettled_, {}))
    if (Status status = work.wait(); first.ok()) first = status;
  return first;
}

void Stopwatch::end_step(std::optional<std::int64_t> number, std::span<Pending* const> carried) {
  close_phase();
  work_out();  // the one before
  step_.number = number;
  step_.end = workplace_->now();
  NotedStep next;
  for (Pending* pending : carried) {
    next.collectives.push_back(step_.collectives[pending->record]);
    pending->record = next.collectives.size() - 1;
  }
  // Carried ones were noted last.
  step_.collectives.resize(step_.collectives.size() - carried.size());
  last_ = std::exchange(step_, std::move(next));
  if (workplace_->device() == Device::cpu) work_out();
}

// ---- working out

StepTimes Stopwatch::take() {
  work_out();
  return std::exchange(finished_, {});
}

void Stopwatch::add_phase(const NotedPhase& noted, StepTimes& times) {
  const std::int64_t begin = workplace_->ns_of(noted.begin);
  const std::int64_t end = workplace_->ns_of(noted.end);
  std::int64_t spent = end - begin;
  for (const auto& [from, to] : noted.waits)
    spent -= workplace_->ns_of(to) - workplace_->ns_of(from);
  if (sink_ != nullptr && workplace_->device() != Device::cpu)
    sink_->compute(name_of(noted.phase), begin, end);
  switch (noted.phase) {
    case StepPhase::none: break;
    case StepPhase::forward:
      if (times.forward == 0) times.first_forward = spent;
      times.forward += spent;
      break;
    case StepPhase::backward:
      times.backward += spent;
      times.last_backward = spent;
      break;
    case StepPhase::update: times.update += spent; break;
  }
}

// The callback of a collective that was waited for may still be on its way, and whoever notes its end may be
// late: what waited for it found it done.
CollectiveTimes Stopwatch::times_of(const NotedCollective& noted) {
  CollectiveTimes times = noted.times;
  times.joined = workplace_->ns_of(noted.joined);
  if (noted.waited) {
    times.wait_begin = workplace_->ns_of(noted.wait_begin);
    times.wait_end = workplace_->ns_of(noted.wait_end);
  }
  const std::int64_t called = noted.called_back->load(std::memory_order_acquire);
  if (noted.done.event != nullptr)
    times.done = workplace_->ns_of(noted.done);
  else
    times.done = called != 0 ? called : times.wait_end;
  if (noted.waited) times.done = std::min(times.done, times.wait_end);
  return times;
}

void Stopwatch::work_out() {
  if (!last_) return;
  const NotedStep step = *std::exchange(last_, std::nullopt);
  finished_ = {};
  for (const NotedPhase& phase : step.phases) add_phase(phase, finished_);
  finished_.begin = step.begin ? workplace_->ns_of(*step.begin) : 0;
  finished_.end = workplace_->ns_of(step.end);
  if (sink_ != nullptr && step.number && finished_.begin != 0)
    sink_->step(*step.number, finished_.begin, finished_.end);
  for (const NotedCollective& collective : step.collectives)
    finished_.collectives.push_back(times_of(collective));
  // Gathers are in a group of their own where they run beside reductions: how those two lie among each
  // other is a matter of luck.
  std::stable_partition(finished_.collectives.begin(), finished_.collectives.end(),
                        [](const auto& one) { return one.collective == Collective::all_gather; });
}

}  // namespace tutti::train
