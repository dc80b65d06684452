#include "step_log.hpp"

#include <cmath>
#include <string>

namespace pretrain {

using tutti::Status;
using tutti::train::LossGuard;

namespace {

std::string fault_name(int rank) { return "loss_not_finite_" + std::to_string(rank); }

// What `tutti trace report` draws curves of.
void trace_counters(tutti::trace::Sink& trace, const StepLine& line, const Throughput& speed) {
  if (line.counted > 0) trace.counter("loss", line.step, line.loss);
  trace.counter("learning rate", line.step, line.lr);
  trace.counter("gradient norm", line.step, line.grad_norm);
  trace.counter(std::string(speed.of) + "/s", line.step, speed.per_s);
}

}  // namespace

tutti::Result<std::unique_ptr<StepLog>> StepLog::create(const Split& split, bool asynchronous,
                                                        TrainingReport* report, LossGuard* guard) {
  tutti::Group& group = *split.everyone();
  auto log = std::make_unique<StepLog>();
  log->rank_ = group.rank();
  log->ranks_ = group.size();
  log->tells_loss_ = split.tells_loss();
  log->asynchronous_ = asynchronous;
  log->report_ = report;
  if (report != nullptr) log->trace_ = group.trace();
  log->guard_ = guard;
  auto bus = tutti::train::MetricsBus::create(group, asynchronous);
  if (!bus.ok()) return bus.status();
  log->bus_ = *std::move(bus);
  // Those who train the same parameters have the same buckets to compare.
  auto meter = tutti::train::OverlapMeter::create(*split.groups().data);
  if (!meter.ok()) return meter.status();
  log->meter_ = *std::move(meter);
  return log;
}

Status StepLog::publish(const StepFacts& facts) {
  now_ = facts.step;
  bus_->add("loss_sum", facts.sums.loss_sum);
  bus_->add("counted", tells_loss_ ? static_cast<double>(facts.sums.tokens) : 0);
  for (int rank = 0; rank < ranks_; ++rank) {
    bus_->add(fault_name(rank), rank == rank_ && !std::isfinite(facts.sums.loss_sum) ? 1 : 0);
  }
  for (const AxisField& field : kAxes) bus_->add(field.name, facts.sums.waits.*field.seconds);
  if (auto status = bus_->publish(facts.step); !status.ok()) return status;
  if (auto status = meter_->publish(facts.step, facts.times); !status.ok()) return status;
  StepLine line;
  line.step = facts.step;
  line.grad_norm = facts.report.grad_norm;
  line.lr = facts.lr;
  line.weight_decay = facts.weight_decay;
  line.sequences = facts.sequences;
  line.ranks = ranks_;
  line.loss_scale = facts.loss_scale;
  line.outcome = facts.report.outcome;
  under_way_.push_back(line);
  const std::size_t may_stay = asynchronous_ ? 1 : 0;
  while (under_way_.size() > may_stay) {
    if (auto status = tell_oldest(); !status.ok()) return status;
  }
  return {};
}

Status StepLog::tell_oldest() {
  StepLine line = under_way_.front();
  under_way_.pop_front();
  auto metrics = bus_->take(true);
  if (!metrics.ok()) return metrics.status();
  auto overlap = meter_->take(true);
  if (!overlap.ok()) return overlap.status();
  if (!*metrics || !*overlap || (*metrics)->step != line.step || (*overlap)->step != line.step) {
    return {tutti::Code::internal, "the log lost step " + std::to_string(line.step)};
  }
  const double counted = (*metrics)->find("counted").value_or(0);
  line.counted = static_cast<std::int64_t>(counted);
  // Of a batch that is masked as a whole there is no loss, and nothing to judge.
  if (counted > 0) line.loss = (*metrics)->find("loss_sum").value_or(0) / counted;
  line.overlap = **overlap;
  for (const AxisField& field : kAxes)
    line.waits.*field.seconds = (*metrics)->find(field.name).value_or(0) / ranks_;
  if (report_ != nullptr) report_->step(line);
  if (trace_ != nullptr) trace_counters(*trace_, line, report_->throughput(line));
  if (counted == 0) return {};

  std::vector<int> at_fault;
  for (int rank = 0; rank < ranks_; ++rank) {
    if ((*metrics)->find(fault_name(rank)).value_or(0) != 0) at_fault.push_back(rank);
  }
  const auto judgement = guard_->judge_loss(line.step, now_, line.loss, at_fault);
  if (judgement.verdict == LossGuard::Verdict::stop) {
    stopped_by_guard_ = true;
    return judgement.status;
  }
  if (!judgement.text.empty() && report_ != nullptr) report_->warning(line.step, judgement.text);
  return {};
}

Status StepLog::flush() {
  while (!under_way_.empty()) {
    if (auto status = tell_oldest(); !status.ok()) return status;
  }
  return {};
}

}  // namespace pretrain
