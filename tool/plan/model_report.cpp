#include "tool/plan/model_report.hpp"

#include <fmt/format.h>

#include "core/json.hpp"
#include "plan/units.hpp"
#include "tool/fitted_table.hpp"

namespace tutti::tool::plan {
namespace {

using tutti::plan::short_text;
using tutti::plan::StepPlan;
using tutti::plan::Traffic;
using tutti::plan::Unit;

std::string bytes(double value) { return short_text(value, Unit::bytes); }
std::string seconds(double value) { return short_text(value, Unit::seconds); }

// "68.98 B", "855.7 M".
std::string parameters(double count) {
  if (count >= 1e9) return fmt::format("{:.2f} B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.1f} M", count / 1e6);
  return fmt::format("{:.0f}", count);
}

std::string head(const ModelAnswer& answer) {
  const StepPlan& plan = answer.plan;
  const auto& p = plan.parameters;
  const auto& l = plan.layout;
  std::string text = fmt::format("{}: {} parameters ({})\n", plan.model.name,
                                 parameters(static_cast<double>(p.total)), p.total);
  const auto part = [](std::int64_t count) { return parameters(static_cast<double>(count)); };
  text += fmt::format("  {} layers of {}: attention {}, mlp {}, norms {}, biases {}\n",
                      plan.model.layers, part(p.layer), part(p.attention), part(p.mlp),
                      part(p.norms), part(p.biases));
  text +=
      fmt::format("  embedding {}, positions {}, final norm {}, head {}\n", part(p.embedding),
                  part(p.positions), part(p.final_norm), plan.model.tied ? "tied" : part(p.head));
  text +=
      fmt::format("{} ranks of {}: dp {} × tp {} × pp {} × cp {}, ZeRO {}, {} recompute{}{}\n",
                  l.ranks(), answer.cluster, l.dp, l.tp, l.pp, l.cp, l.zero, to_string(l.recompute),
                  l.sequence_parallel ? ", sequence parallel" : "",
                  l.virtual_stages > 1 ? fmt::format(", {} virtual stages", l.virtual_stages) : "");
  text += fmt::format(
      "  {} sequences of {} tokens a step: {} micro-batches of {} on each of {} "
      "replicas; {:.4g} FLOP a step\n",
      l.global_batch, l.seq, l.micro_batches(), l.micro_batch, l.dp, plan.model_flops);
  return text;
}

std::string memory_table(const StepPlan& plan) {
  const auto& memory = plan.memory;
  std::string text = fmt::format("\nmemory of a rank (stage {}, {} parameters)\n", memory.stage,
                                 parameters(plan.rank_parameters));
  const std::pair<const char*, double> rows[] = {
      {"weights", memory.weights},     {"gradients", memory.gradients},
      {"optimizer", memory.optimizer}, {"activations", memory.activations},
      {"buffers", memory.buffers},     {"total", memory.total()},
      {"usable", plan.memory_limit}};
  for (const auto& [name, value] : rows)
    text += fmt::format("  {:<14}{:>12}\n", name, bytes(value));
  return text;
}

std::string traffic_table(const StepPlan& plan, std::size_t width) {
  if (plan.traffic.empty()) return "\nno communication: one rank\n";
  constexpr auto kSideLeft = TableColumn::Side::left;
  const FittedTable table({{"traffic", "", 10, 70, kSideLeft, ""},
                           {"operation", "", 46, 60, kSideLeft},
                           {"ranks", "", 6, 50},
                           {"calls", "", 8, 20},
                           {"array", "", 9, 40},
                           {"sent/rank", "", 10, 80},
                           {"time", "", 9, 90},
                           {"hidden by", "", 26, 30, kSideLeft, "  "},
                           {"ratio", "", 7, 10},
                           {"exposed", "", 9, 100}},
                          width);
  std::string text = "\n" + table.names() + "\n";
  for (const Traffic& each : plan.traffic) {
    const std::string cells[] = {each.kind,
                                 each.operation,
                                 std::to_string(each.ranks),
                                 fmt::format("{:.0f}", each.calls),
                                 bytes(each.call_bytes),
                                 bytes(each.rank_bytes),
                                 seconds(each.seconds),
                                 each.hidden_by,
                                 each.hider_s > 0 ? fmt::format("{:.3f}", each.ratio()) : "-",
                                 seconds(each.exposed_s)};
    text += table.line(cells) + "\n";
  }
  if (const std::string left_out = table.left_out(); !left_out.empty())
    text += fmt::format("(--wide adds: {})\n", left_out);
  return text;
}

std::string step_table(const StepPlan& plan) {
  std::string text = "\nstep\n";
  const std::pair<const char*, double> rows[] = {{"compute", plan.compute_s},
                                                 {"tensor, exposed", plan.tensor_s},
                                                 {"context, exposed", plan.context_s},
                                                 {"pipeline, exposed", plan.pipeline_s},
                                                 {"bubble", plan.bubble_s},
                                                 {"gradients, exposed", plan.gradients_s},
                                                 {"weights, exposed", plan.weights_s},
                                                 {"update", plan.update_s},
                                                 {"step", plan.step_s}};
  for (const auto& [name, value] : rows)
    text +=
        fmt::format("  {:<20}{:>12}{:>9.2f} %\n", name, seconds(value), value / plan.step_s * 100);
  text += fmt::format("MFU {:.1f} %   HFU {:.1f} %   {:.0f} tokens/s   {:.0f} tokens/s a rank\n",
                      plan.mfu * 100, plan.hfu * 100, plan.tokens_per_s,
                      plan.tokens_per_s / plan.layout.ranks());
  return text;
}

std::string gain_line(const ModelAnswer& answer) {
  if (!answer.gain) return "";
  const auto& gain = *answer.gain;
  std::string text = fmt::format(
      "weight gathers beside forward: step {} instead of {}, gain {:.2f} % (at most {:.2f} %)",
      seconds(gain.with_s), seconds(gain.without_s), gain.gain * 100, gain.most_gain * 100);
  if (answer.plan.model.name == "llama2-70b") {
    text +=
        fmt::format("; MindSpeed reports {:.1f} % for this model, its cluster and batch unnamed",
                    tutti::plan::kReportedGain * 100);
    if (gain.global_batch_for_reported > 0)
      text += fmt::format(": here that would be a global batch of about {}",
                          gain.global_batch_for_reported);
  }
  return text + "\n";
}

Json parameters_json(const StepPlan& plan) {
  const auto& p = plan.parameters;
  return {{"total", p.total},
          {"layer", p.layer},
          {"attention", p.attention},
          {"mlp", p.mlp},
          {"norms", p.norms},
          {"biases", p.biases},
          {"embedding", p.embedding},
          {"positions", p.positions},
          {"final_norm", p.final_norm},
          {"head", p.head},
          {"of_rank", plan.rank_parameters}};
}

Json memory_json(const StepPlan& plan) {
  const auto& m = plan.memory;
  return {{"stage", m.stage},
          {"weights_bytes", m.weights},
          {"gradients_bytes", m.gradients},
          {"optimizer_bytes", m.optimizer},
          {"activations_bytes", m.activations},
          {"buffers_bytes", m.buffers},
          {"total_bytes", m.total()},
          {"usable_bytes", plan.memory_limit},
          {"fits", plan.fits()}};
}

Json traffic_json(const StepPlan& plan) {
  auto list = Json::array();
  for (const Traffic& each : plan.traffic) {
    Json row = {
        {"kind", each.kind},       {"operation", each.operation},   {"ranks", each.ranks},
        {"calls", each.calls},     {"call_bytes", each.call_bytes}, {"rank_bytes", each.rank_bytes},
        {"seconds", each.seconds}, {"hidden_by", each.hidden_by},   {"hider_s", each.hider_s},
        {"ratio", nullptr},        {"exposed_s", each.exposed_s}};
    if (each.hider_s > 0) row["ratio"] = each.ratio();
    list.push_back(std::move(row));
  }
  return list;
}

Json step_json(const StepPlan& plan) {
  return {{"compute_s", plan.compute_s},
          {"tensor_s", plan.tensor_s},
          {"context_s", plan.context_s},
          {"pipeline_s", plan.pipeline_s},
          {"bubble_s", plan.bubble_s},
          {"gradients_s", plan.gradients_s},
          {"weights_s", plan.weights_s},
          {"update_s", plan.update_s},
          {"step_s", plan.step_s},
          {"mfu", plan.mfu},
          {"hfu", plan.hfu},
          {"tokens_per_s", plan.tokens_per_s},
          {"break_even_tokens", plan.break_even_tokens},
          {"buckets", plan.buckets}};
}

}  // namespace

std::string model_text(const ModelAnswer& answer, std::size_t width) {
  return head(answer) + memory_table(answer.plan) + traffic_table(answer.plan, width) +
         step_table(answer.plan) + gain_line(answer) + "verdict: " + answer.verdict + "\n";
}

std::string explain_text(const std::vector<tutti::plan::Section>& sections) {
  std::string text;
  for (const auto& section : sections) {
    text += "\n" + section.title + "\n";
    for (const auto& term : section.terms)
      text += fmt::format("  {:<22} {}{}{} = {}\n", term.name, term.formula,
                          term.numbers.empty() ? "" : " = ", term.numbers, term.result);
  }
  return text;
}

Json layout_json(const tutti::plan::ModelLayout& layout) {
  return {{"ranks", layout.ranks()},
          {"dp", layout.dp},
          {"tp", layout.tp},
          {"pp", layout.pp},
          {"cp", layout.cp},
          {"virtual_stages", layout.virtual_stages},
          {"zero", layout.zero},
          {"recompute", to_string(layout.recompute)},
          {"sequence_parallel", layout.sequence_parallel},
          {"precision", layout.precision.name},
          {"seq", layout.seq},
          {"micro_batch", layout.micro_batch},
          {"global_batch", layout.global_batch},
          {"micro_batches", layout.micro_batches()},
          {"overlap_grad_reduce", layout.overlap_grad_reduce},
          {"overlap_param_gather", layout.overlap_param_gather},
          {"overlap_tp", layout.overlap_tp}};
}

Json model_json(const ModelAnswer& answer) {
  const StepPlan& plan = answer.plan;
  Json document = {{"version", 1},
                   {"model", plan.model.name},
                   {"cluster", answer.cluster},
                   {"layout", layout_json(plan.layout)},
                   {"parameters", parameters_json(plan)},
                   {"model_flops", plan.model_flops},
                   {"hardware_flops", plan.hardware_flops},
                   {"memory", memory_json(plan)},
                   {"traffic", traffic_json(plan)},
                   {"step", step_json(plan)}};
  if (answer.gain)
    document["param_gather_overlap"] = {{"with_s", answer.gain->with_s},
                                        {"without_s", answer.gain->without_s},
                                        {"gain", answer.gain->gain},
                                        {"most_gain", answer.gain->most_gain}};
  document["binds"] = answer.binds;
  document["verdict"] = answer.verdict;
  return document;
}

}  // namespace tutti::tool::plan
