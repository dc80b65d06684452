// A plan, step by step, through memory that lives as long as the step after needs it.
#include <fmt/format.h>

#include <cstring>

#include "core/exhausted.hpp"
#include "mesh/step_run.hpp"

namespace tutti {
inline namespace v1 {
namespace {

using mesh::StepKind;
using mesh::StepTask;

Status refuse_redistribution(std::string what) {
  return {Code::invalid_argument, "redistribute: " + std::move(what)};
}

Status check_side(const char* side, const TensorLayout& layout, int position,
                  const ConstBuffer& buffer) {
  const std::int64_t count = layout.box(position).count();
  if (buffer.dtype != layout.dtype)
    return refuse_redistribution(fmt::format("{} is {}, the tensor is {}", side,
                                             to_string(buffer.dtype), to_string(layout.dtype)));
  if (buffer.count != static_cast<std::size_t>(count))
    return refuse_redistribution(fmt::format("{} has {} elements; this rank's box of {} has {}",
                                             side, buffer.count, to_string(layout), count));
  if (buffer.data == nullptr && count > 0)
    return refuse_redistribution(fmt::format("{} is null but has {} elements", side, count));
  return {};
}

bool overlap(const ConstBuffer& input, const Buffer& output) {
  const auto* first = static_cast<const std::byte*>(input.data);
  const auto* second = static_cast<const std::byte*>(output.data);
  return input.count > 0 && output.count > 0 && first < second + output.bytes() &&
         second < first + input.bytes();
}

// One collective that finds everything in order: nothing would have to be packed on the device.
Status check_device(const RedistributionPlan& plan) {
  const auto& steps = plan.chain.steps;
  if (steps.size() == 1 && mesh::copies_nothing(steps[0], plan.from)) return {};
  return {
      Code::unsupported,
      fmt::format("redistribute: on a GPU only plans of one collective run that need no packing; "
                  "copy to CPU memory for ({}) to ({})",
                  to_string(plan.from.placements), to_string(plan.to.placements))};
}

// Of what is partial in the beginning.
ReduceOp op_before(const RedistributionPlan& plan) {
  for (const AxisPlacement& placement : plan.from.placements)
    if (placement.kind == AxisPlacement::Kind::partial) return placement.op;
  return ReduceOp::sum;
}

}  // namespace
}  // namespace v1

namespace mesh {

class PlanRun {
 public:
  PlanRun(Mesh& mesh, const RedistributionPlan& plan)
      : mesh_(mesh),
        plan_(plan),
        position_(position_of(mesh.axes(), mesh.coordinates())),
        element_bytes_(size_of(plan.from.dtype)) {}

  Status check(ConstBuffer input, Buffer output) const {
    if (to_string(mesh_.axes()) != to_string(plan_.from.axes))
      return refuse_redistribution(fmt::format("a plan for a mesh {}, and this one is {}",
                                               to_string(plan_.from.axes),
                                               to_string(mesh_.axes())));
    if (Status status = check_side("input", plan_.from, position_, input); !status.ok())
      return status;
    if (Status status = check_side("output", plan_.to, position_, output); !status.ok())
      return status;
    if (overlap(input, output)) return refuse_redistribution("input and output overlap");
    const bool on_device = input.device != Device::cpu || output.device != Device::cpu;
    return on_device ? check_device(plan_) : Status();
  }

  Status run(ConstBuffer input, Buffer output) {
    const auto& steps = plan_.chain.steps;
    if (steps.empty() && output.count > 0) std::memcpy(output.data, input.data, output.bytes());
    if (Status status = find_groups(); !status.ok()) return give_up(0, status);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Status status = or_exhausted([&] { return run_step(i, input, output); });
      if (!status.ok()) return give_up(i, status);
    }
    return {};
  }

 private:
  // `input` becomes what the step has left.
  Status run_step(std::size_t number, ConstBuffer& input, Buffer output) {
    const auto& steps = plan_.chain.steps;
    const RedistributionStep& step = steps[number];
    std::unique_ptr<std::byte[]> next;
    Buffer target = output;
    if (number + 1 < steps.size()) {
      const auto count = static_cast<std::size_t>(step.after.box(position_).count());
      next = std::make_unique_for_overwrite<std::byte[]>(count * element_bytes_);
      target = Buffer{next.get(), count, output.dtype};
    }
    const StepTask task{step, number == 0 ? plan_.from : steps[number - 1].after, position_,
                        op_before(plan_)};
    if (Status status = run_task(task, groups_[number].get(), input, target); !status.ok())
      return status;
    input = target;
    kept_ = std::move(next);
    return {};
  }

  Status run_task(const StepTask& task, Group* group, ConstBuffer input, Buffer output) {
    if (group == nullptr) {
      run_alone(task, input, output);
      return {};
    }
    if (task.step.kind != StepKind::transfer) return run_collective(task, *group, input, output);
    return run_transfer(task, *group, mesh_.ranks(), mesh_.costs().hosts, input, output);
  }

  // All before the first step: those that are new are made by all of their ranks.
  Status find_groups() {
    for (const RedistributionStep& step : plan_.chain.steps) {
      AxisSet set = 0;
      for (const int axis : step.axes) set |= set_of(axis);
      Result<std::shared_ptr<Group>> group = std::shared_ptr<Group>();
      if (step.kind == StepKind::transfer)
        group = mesh_.group();
      else if (step.kind != StepKind::slice && step.kind != StepKind::make_partial)
        group = mesh_.along_set(set);
      if (!group.ok()) return group.status();
      groups_.push_back(*std::move(group));
    }
    return {};
  }

  // Others, who know nothing of it, would wait for this rank in what is left of the plan.
  Status give_up(std::size_t number, const Status& why) {
    const auto& steps = plan_.chain.steps;
    const Status status = why.annotate(fmt::format("redistribute, step {} of {}, {}", number + 1,
                                                   steps.size(), to_string(steps[number].kind)));
    for (const auto& group : groups_)
      if (group && group->health().ok()) group->abort(status.message());
    return status;
  }

  Mesh& mesh_;
  const RedistributionPlan& plan_;
  int position_;
  std::size_t element_bytes_;
  std::vector<std::shared_ptr<Group>> groups_;  // by step; null: each rank works alone
  std::unique_ptr<std::byte[]> kept_;           // what the last step has left
};

}  // namespace mesh

inline namespace v1 {

Status redistribute(Mesh& mesh, const RedistributionPlan& plan, ConstBuffer input, Buffer output) {
  mesh::PlanRun run(mesh, plan);
  if (Status status = run.check(input, output); !status.ok()) return status;
  return run.run(input, output);
}

}  // namespace v1
}  // namespace tutti
