#include "prediction.hpp"

#include <fmt/format.h>

namespace pretrain {

using tutti::plan::Transfer;

namespace {

// Buckets lie in symmetric memory.
tutti::Result<double> by_tuner(tutti::Group& group, const PlannedCollective& call) {
  auto prediction = group.predict(call.collective, call.bytes);
  if (!prediction.ok()) return prediction.status();
  return std::chrono::duration<double>(prediction->symmetric_time).count();
}

std::vector<Transfer> transfers_of(const std::vector<PlannedCollective>& calls) {
  std::vector<Transfer> transfers;
  for (const PlannedCollective& call : calls) transfers.push_back({call.at_s, call.alone_s});
  return transfers;
}

std::string row(const char* name, double predicted, double measured, double whole) {
  // Of something tiny the share says little: it is told of the step, too.
  const std::string off =
      measured > 0 ? fmt::format("{:+.1f} %", (predicted / measured - 1) * 100) : "-";
  return fmt::format("{:<26}{:>14.3f}{:>14.3f}{:>12}{:>14}\n", name, predicted * 1e3,
                     measured * 1e3, off,
                     fmt::format("{:+.1f} %", (predicted - measured) / whole * 100));
}

}  // namespace

tutti::Result<Foretold> foretell(tutti::Group& group, const Rehearsal& rehearsal) {
  Foretold foretold;
  foretold.pace = rehearsal.shape.pace;
  if (group.size() > 1) {
    for (const auto* calls : {&rehearsal.reductions, &rehearsal.gathers})
      for (const PlannedCollective& call : *calls) {
        auto seconds = by_tuner(group, call);
        if (!seconds.ok()) return seconds.status();
        foretold.tuner_s += *seconds;
        foretold.alone_s += call.alone_s;
      }
  }
  tutti::plan::StepShape shape = rehearsal.shape;
  shape.control_s = rehearsal.control.alone_s;
  foretold.step = tutti::plan::predict_step(shape, transfers_of(rehearsal.reductions),
                                            transfers_of(rehearsal.gathers));
  foretold.step.step_s += rehearsal.waiting_s;
  return foretold;
}

std::string compare(const Foretold& foretold, const MeasuredSteps& measured) {
  const auto& step = foretold.step;
  std::string text = fmt::format("\n{:<26}{:>14}{:>14}{:>12}{:>14}\n", "prediction, ms",
                                 "predicted", "measured", "off by", "of the step");
  text += row("step", step.step_s, measured.step_s, measured.step_s);
  text += row("exposed communication", step.exposed_s, measured.exposed_s, measured.step_s);
  text += row("communication (wire)", step.wire_s, measured.wire_s, measured.step_s);
  text += fmt::format("buckets alone: {:.3f} ms measured, {:.3f} ms by the tuner\n",
                      foretold.alone_s * 1e3, foretold.tuner_s * 1e3);
  return text;
}

}  // namespace pretrain
