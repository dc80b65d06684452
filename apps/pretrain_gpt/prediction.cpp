#include "prediction.hpp"

#include <fmt/format.h>

namespace pretrain {

using tutti::plan::Transfer;

namespace {

// Buckets lie in symmetric memory.
tutti::Result<double> cost(tutti::Group& group, const PlannedCollective& call) {
  auto prediction = group.predict(call.collective, call.bytes);
  if (!prediction.ok()) return prediction.status();
  return std::chrono::duration<double>(prediction->symmetric_time).count();
}

tutti::Result<std::vector<Transfer>> priced(tutti::Group& group,
                                            const std::vector<PlannedCollective>& calls) {
  std::vector<Transfer> transfers;
  for (const PlannedCollective& call : calls) {
    auto seconds = cost(group, call);
    if (!seconds.ok()) return seconds.status();
    transfers.push_back({call.at_s, *seconds});
  }
  return transfers;
}

std::string row(const char* name, double predicted, double measured, double whole) {
  // Of something tiny the share is meaningless: it is told beside the step.
  const std::string off =
      measured > 0 ? fmt::format("{:+.1f} %", (predicted / measured - 1) * 100) : "-";
  return fmt::format("{:<26}{:>14.3f}{:>14.3f}{:>12}{:>14}\n", name, predicted * 1e3,
                     measured * 1e3, off,
                     fmt::format("{:+.1f} %", (predicted - measured) / whole * 100));
}

}  // namespace

tutti::Result<tutti::plan::StepPrediction> predict(tutti::Group& group,
                                                   const Rehearsal& rehearsal) {
  auto reductions = priced(group, rehearsal.reductions);
  if (!reductions.ok()) return reductions.status();
  auto gathers = priced(group, rehearsal.gathers);
  if (!gathers.ok()) return gathers.status();
  tutti::plan::StepShape shape = rehearsal.shape;
  if (rehearsal.control_bytes > 0 && group.size() > 1) {
    auto control =
        cost(group, {tutti::Collective::all_reduce, rehearsal.control_bytes, 0});
    if (!control.ok()) return control.status();
    shape.control_s = *control;
  }
  auto prediction = tutti::plan::predict_step(shape, *reductions, *gathers);
  prediction.step_s += rehearsal.waiting_s;
  return prediction;
}

std::string compare(const tutti::plan::StepPrediction& predicted, double measured_step_s,
                    double measured_exposed_s, double measured_wire_s) {
  std::string text = fmt::format("\n{:<26}{:>14}{:>14}{:>12}{:>14}\n", "prediction, ms",
                                 "predicted", "measured", "off by", "of the step");
  text += row("step", predicted.step_s, measured_step_s, measured_step_s);
  text += row("exposed communication", predicted.exposed_s, measured_exposed_s, measured_step_s);
  text += row("communication (wire)", predicted.wire_s, measured_wire_s, measured_step_s);
  return text;
}

}  // namespace pretrain
