#include "plan/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/units.hpp"

namespace tutti::plan {
namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", share * 100); }

// Sequences a step after which the bubble is no longer worth a word.
std::int64_t batch_for_small_bubble(const ModelLayout& layout) {
  const double batches = (layout.pp - 1) / (kNoticeable * layout.virtual_stages);
  return std::llround(std::ceil(batches)) * layout.dp * layout.micro_batch;
}

std::string advise_memory(const StepPlan& plan) {
  const ModelLayout& layout = plan.layout;
  const std::string_view part = largest_part(plan.memory);
  if (part == "activations") {
    if (layout.micro_batch > 1) return "halve --micro-batch";
    if (layout.recompute != Recompute::full) return "--recompute full, or more tp or cp";
    return "more tp or cp";
  }
  if (layout.zero == 0 && layout.data_ranks() > 1) return "--zero 1, or more tp or pp";
  if (part == "optimizer") return "more dp to share the optimizer, or more tp or pp";
  return layout.pp == 1 && layout.zero < 3 ? "more tp or pp, or --zero 3" : "more tp or pp";
}

std::string advise_tensor(const StepPlan& plan, const Cluster& cluster) {
  const ModelLayout& layout = plan.layout;
  if (layout.tp > cluster.ranks_per_host && cluster.ranks_per_host > 1)
    return fmt::format("tp beyond the {} ranks of a host goes over the network: lower it",
                       cluster.ranks_per_host);
  if (!layout.overlap_tp) return "--overlap-tp hides it beside its matrix products; or lower tp";
  return "lower tp, if memory permits";
}

std::string advise_data(const StepPlan& plan, bool overlaps, const char* flag) {
  const ModelLayout& layout = plan.layout;
  if (layout.zero == 3)
    return fmt::format(
        "every micro-batch moves all weights: {:.0f} tokens a micro-batch, {:.0f} "
        "would hide it; raise --micro-batch, or --zero 1 if memory permits",
        layout.tokens(), std::ceil(plan.break_even_tokens * 1.5));
  if (layout.zero == 2 && layout.micro_batches() > 1)
    return "ZeRO-2 reduces after every micro-batch: --zero 1 if memory permits";
  if (!overlaps)
    return fmt::format("{} hides up to {}", flag,
                       short_text(plan.stage.backward_s(), Unit::seconds));
  return fmt::format(
      "{:.0f} tokens of a micro-batch hide less than {:.0f} would; raise "
      "--micro-batch, or --global-batch: it is paid once a step",
      layout.tokens(), std::ceil(plan.break_even_tokens));
}

std::string advise_compute(const StepPlan& plan) {
  if (plan.layout.recompute == Recompute::full)
    return fmt::format("recompute is {} of it: --recompute selective if memory permits",
                       percent(1 - plan.model_flops / plan.hardware_flops));
  return "more ranks make the step shorter; nothing else does by more than a few percent";
}

std::string advice(const StepPlan& plan, Constraint constraint, const Cluster& cluster) {
  const ModelLayout& layout = plan.layout;
  switch (constraint) {
    case Constraint::memory: return advise_memory(plan);
    case Constraint::compute: return advise_compute(plan);
    case Constraint::bubble:
      return fmt::format("--global-batch {} or more makes it less than {}{}; or lower pp",
                         batch_for_small_bubble(layout), percent(kNoticeable),
                         plan.model.layers / layout.pp > layout.virtual_stages
                             ? ", more --virtual-stages divide it"
                             : "");
    case Constraint::tensor: return advise_tensor(plan, cluster);
    case Constraint::context: return "lower cp: each block of attention hides its hop then";
    case Constraint::pipeline:
      return "--virtual-stages 2 computes meanwhile; or raise --micro-batch, or lower pp";
    case Constraint::gradients:
      return advise_data(plan, layout.overlap_grad_reduce, "--overlap-grad-reduce");
    case Constraint::weights:
      return advise_data(plan, layout.overlap_param_gather, "--overlap-param-gather");
    case Constraint::update:
      return layout.zero == 0 ? "--zero 1 shares it"
                              : "raise --global-batch: it is paid once a step";
  }
  return "";
}

}  // namespace

std::string_view to_string(Constraint constraint) noexcept {
  switch (constraint) {
    case Constraint::memory: return "memory";
    case Constraint::compute: return "compute";
    case Constraint::bubble: return "bubble";
    case Constraint::tensor: return "tensor";
    case Constraint::context: return "context";
    case Constraint::pipeline: return "pipeline";
    case Constraint::gradients: return "gradients";
    case Constraint::weights: return "weights";
    case Constraint::update: return "update";
  }
  return "?";
}

double seconds_of(const StepPlan& plan, Constraint constraint) {
  switch (constraint) {
    case Constraint::memory: return 0;
    case Constraint::compute: return plan.compute_s;
    case Constraint::bubble: return plan.bubble_s;
    case Constraint::tensor: return plan.tensor_s;
    case Constraint::context: return plan.context_s;
    case Constraint::pipeline: return plan.pipeline_s;
    case Constraint::gradients: return plan.gradients_s;
    case Constraint::weights: return plan.weights_s;
    case Constraint::update: return plan.update_s;
  }
  return 0;
}

Constraint binding_constraint(const StepPlan& plan) {
  if (!plan.fits()) return Constraint::memory;
  Constraint largest = Constraint::bubble;
  for (int i = static_cast<int>(Constraint::bubble); i < kConstraints; ++i)
    if (seconds_of(plan, static_cast<Constraint>(i)) > seconds_of(plan, largest))
      largest = static_cast<Constraint>(i);
  return seconds_of(plan, largest) < kNoticeable * plan.step_s ? Constraint::compute : largest;
}

std::string_view largest_part(const Memory& memory) {
  const std::pair<double, std::string_view> parts[] = {{memory.weights, "weights"},
                                                       {memory.gradients, "gradients"},
                                                       {memory.optimizer, "optimizer"},
                                                       {memory.activations, "activations"},
                                                       {memory.buffers, "buffers"}};
  return std::max_element(std::begin(parts), std::end(parts),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

std::string verdict(const StepPlan& plan, const Cluster& cluster) {
  const Constraint constraint = binding_constraint(plan);
  const std::string what = advice(plan, constraint, cluster);
  if (constraint == Constraint::memory)
    return fmt::format("memory binds: a rank of stage {} needs {} of {} usable, most of it {}; {}",
                       plan.memory.stage, short_text(plan.memory.total(), Unit::bytes),
                       short_text(plan.memory_limit, Unit::bytes), largest_part(plan.memory), what);
  const std::string share = percent(seconds_of(plan, constraint) / plan.step_s);
  const char* exposed = constraint == Constraint::compute || constraint == Constraint::bubble ||
                                constraint == Constraint::update
                            ? ""
                            : " exposed";
  return fmt::format("{} binds: {} of the step{}; {}", to_string(constraint), share, exposed, what);
}

}  // namespace tutti::plan
