#include "plan/explain.hpp"

#include <fmt/format.h>

#include "plan/units.hpp"

namespace tutti::plan {
namespace {

std::string bytes(double value) { return short_text(value, Unit::bytes); }
std::string seconds(double value) { return short_text(value, Unit::seconds); }
std::string flops(double value) { return fmt::format("{:.5g} FLOP", value); }

Section explain_parameters(const StepPlan& plan) {
  const Model& m = plan.model;
  const ParameterCount& p = plan.parameters;
  const int gates = m.glu ? 3 : 2;
  Section section{"parameters", {}};
  auto& terms = section.terms;
  terms.push_back({"attention", "h·(q + 2·kv) + q·h",
                   fmt::format("{}·({} + 2·{}) + {}·{}", m.hidden, m.query_width(), m.kv_width(),
                               m.query_width(), m.hidden),
                   fmt::format("{}", p.attention)});
  terms.push_back({"mlp", m.glu ? "3·h·ffn (gated)" : "2·h·ffn",
                   fmt::format("{}·{}·{}", gates, m.hidden, m.ffn), fmt::format("{}", p.mlp)});
  terms.push_back({"norms", m.bias ? "2·2·h" : "2·h",
                   fmt::format("{}·{}", m.bias ? "2·2" : "2", m.hidden),
                   fmt::format("{}", p.norms)});
  terms.push_back(
      {"biases", m.bias ? "q + 2·kv + h + fc1 + h" : "none", "", fmt::format("{}", p.biases)});
  terms.push_back({"layers", "layers · layer", fmt::format("{} · {}", m.layers, p.layer),
                   fmt::format("{}", m.layers * p.layer)});
  terms.push_back({"embedding", "vocab·h", fmt::format("{}·{}", m.vocab, m.hidden),
                   fmt::format("{}", p.embedding)});
  terms.push_back({"positions", "max_positions·h", fmt::format("{}·{}", m.max_positions, m.hidden),
                   fmt::format("{}", p.positions)});
  terms.push_back({"head", m.tied ? "tied: 0" : "vocab·h", "", fmt::format("{}", p.head)});
  terms.push_back({"total", "layers + embedding + positions + final norm + head", "",
                   fmt::format("{}", p.total)});
  terms.push_back({"of a rank", "stage's layers and ends, matrices / tp",
                   fmt::format("pp {}, tp {}", plan.layout.pp, plan.layout.tp),
                   fmt::format("{:.0f}", plan.rank_parameters)});
  return section;
}

Section explain_flops(const StepPlan& plan) {
  const Model& m = plan.model;
  const ModelLayout& l = plan.layout;
  const TokenFlops token = token_flops(m, l.seq);
  const double tokens = static_cast<double>(l.global_batch) * l.seq;
  Section section{"FLOPs", {}};
  auto& terms = section.terms;
  terms.push_back(
      {"linear, a token", "2 · layers · (attention + mlp)",
       fmt::format("2 · {} · {}", m.layers, plan.parameters.attention + plan.parameters.mlp),
       flops(token.linear)});
  terms.push_back({"scores, a token", "layers · 4·s·q / 2 (causal)",
                   fmt::format("{} · 4·{}·{} / 2", m.layers, l.seq, m.query_width()),
                   flops(token.scores)});
  terms.push_back(
      {"head, a token", "2·vocab·h", fmt::format("2·{}·{}", m.vocab, m.hidden), flops(token.head)});
  terms.push_back({"step", "tokens · 3 · forward (backward is twice forward)",
                   fmt::format("{:.0f} · 3 · {:.5g}", tokens, token.forward()),
                   flops(plan.model_flops)});
  terms.push_back({"with recompute", fmt::format("{} recompute", to_string(l.recompute)), "",
                   flops(plan.hardware_flops)});
  return section;
}

Section explain_memory(const StepPlan& plan) {
  const ModelLayout& l = plan.layout;
  const Precision& b = l.precision;
  const Memory& memory = plan.memory;
  const LayerActivations layer = layer_activations(plan.model, l, l.recompute);
  const int d = l.data_ranks();
  const auto over = [&](bool sharded) { return sharded ? fmt::format(" / {}", d) : ""; };
  const double elements = memory.weights / b.weight * (l.zero >= 3 ? d : 1);
  Section section{fmt::format("memory of a rank of stage {}", memory.stage), {}};
  auto& terms = section.terms;
  terms.push_back({"weights", "P·b" + over(l.zero >= 3),
                   fmt::format("{:.0f}·{}{}", elements, b.weight, over(l.zero >= 3)),
                   bytes(memory.weights)});
  terms.push_back({"gradients", "P·b" + over(l.zero >= 2),
                   fmt::format("{:.0f}·{}{}", elements, b.gradient, over(l.zero >= 2)),
                   bytes(memory.gradients)});
  terms.push_back({"optimizer", "P·b" + over(l.zero >= 1),
                   fmt::format("{:.0f}·{}{}", elements, b.optimizer, over(l.zero >= 1)),
                   bytes(memory.optimizer)});
  terms.push_back({"a layer's activations", "by sequence + by tensor + scores",
                   fmt::format("{} + {} + {}", bytes(layer.by_sequence), bytes(layer.by_tensor),
                               bytes(layer.scores)),
                   bytes(layer.total())});
  terms.push_back({"activations", "in flight · layers/pp · a layer's + ends",
                   fmt::format("{:.4g} · {} · {}", memory.in_flight, plan.model.layers / l.pp,
                               bytes(layer.total())),
                   bytes(memory.activations)});
  if (memory.buffers > 0)
    terms.push_back(
        {"buffers", "gathered and not yet scattered layers", "", bytes(memory.buffers)});
  return section;
}

Section explain_time(const StepPlan& plan, Prices& prices) {
  const ModelLayout& l = plan.layout;
  const Processor& processor = prices.cluster().processor;
  const auto m = l.micro_batches();
  const StageTime& stage = plan.stage;
  Section section{"time", {}};
  auto& terms = section.terms;
  terms.push_back({"F", "peak · efficiency",
                   fmt::format("{:.4g} · {}", processor.peak_flops, processor.efficiency),
                   fmt::format("{:.5g} FLOP/s", prices.flops_per_s())});
  terms.push_back({"micro-batches", "global batch / (dp · micro-batch)",
                   fmt::format("{} / ({} · {})", l.global_batch, l.dp, l.micro_batch),
                   fmt::format("{}", m)});
  terms.push_back({"forward", "slowest stage's FLOPs / F", "", seconds(stage.compute.forward)});
  terms.push_back({"backward", "2 · forward + recomputed", "", seconds(stage.compute.backward)});
  terms.push_back({"compute", "micro-batches · (forward + backward)",
                   fmt::format("{} · ({} + {})", m, seconds(stage.compute.forward),
                               seconds(stage.compute.backward)),
                   seconds(plan.compute_s)});
  const double whole = stage.forward_s() + stage.backward_s();
  terms.push_back({"bubble", "(sum of stages − slowest) / v",
                   fmt::format("about (pp − 1)/(v·m) = {}/({}·{}) of {}", l.pp - 1,
                               l.virtual_stages, m, seconds(whole * static_cast<double>(m))),
                   seconds(plan.bubble_s)});
  const Precision& b = l.precision;
  terms.push_back({"update", "P · (gradient + 2·optimizer + weight) / memory bandwidth",
                   fmt::format("{:.0f}{} · {} B / {}", plan.rank_parameters,
                               l.zero >= 1 ? fmt::format("/{}", l.data_ranks()) : "",
                               b.gradient + 2 * b.optimizer + b.weight,
                               short_text(processor.memory_bandwidth, Unit::bytes_per_s)),
                   seconds(plan.update_s)});
  terms.push_back({"step", "compute + bubble + exposed + update", "", seconds(plan.step_s)});
  terms.push_back({"MFU", "FLOPs / (step · ranks · peak)",
                   fmt::format("{:.5g} / ({} · {} · {:.4g})", plan.model_flops,
                               seconds(plan.step_s), l.ranks(), processor.peak_flops),
                   fmt::format("{:.2f} %", plan.mfu * 100)});
  return section;
}

std::string ratio_formula(const Traffic& traffic, const ModelLayout& l) {
  const bool three = l.zero == 3;
  if (traffic.kind == "tensor") return "linear: b·(tp − 1)·F/(2·h·B), by width";
  if (traffic.kind == "context") return "g·b·cp·F/(s·B), causal";
  if (traffic.kind == "pipeline") return "b·h·F/(2·P_stage·B) against forward; both ways 2/3 of it";
  if (traffic.kind == "weights") return "(b/2T)·q·F/B";
  if (traffic.kind == "gradients")
    return three ? "((b_p + b_g)/4T)·q·F/B" : l.zero == 0 ? "(b/2T)·q·F/B" : "(b/4T)·q·F/B";
  return "";
}

Section explain_traffic(const StepPlan& plan, double f) {
  Section section{"communication of a rank", {}};
  for (const Traffic& each : plan.traffic) {
    section.terms.push_back(
        {each.kind, each.operation + ", calls · time of one",
         fmt::format("{:.0f} · {} of {} over {} ranks", each.calls,
                     seconds(each.seconds / each.calls), bytes(each.call_bytes), each.ranks),
         seconds(each.seconds)});
    if (each.hider_s > 0)
      section.terms.push_back({"", fmt::format("ratio {}", ratio_formula(each, plan.layout)),
                               fmt::format("{} / {} of {}", seconds(each.seconds),
                                           seconds(each.hider_s), each.hidden_by),
                               fmt::format("{:.4g}", each.ratio())});
    section.terms.push_back({"", "exposed", "", seconds(each.exposed_s)});
  }
  if (plan.break_even_tokens > 0)
    section.terms.push_back(
        {"break-even", "T = (b/2)·q·F/B",
         fmt::format("{:.4g} · {:.4g} FLOP/s · {:.4g} s/B", plan.layout.precision.weight / 2, f,
                     plan.break_even_tokens / f / (plan.layout.precision.weight / 2)),
         fmt::format("{:.0f} tokens (a micro-batch has {:.0f})", plan.break_even_tokens,
                     plan.layout.tokens())});
  return section;
}

// Buckets in the order of their launch: ready, start, end.
Section explain_buckets(const StepPlan& plan) {
  Section section{"buckets of stage 0 in the last backward, start = max(ready, end before)", {}};
  double end = 0;
  for (std::size_t i = 0; i < plan.reductions.size(); ++i) {
    const Transfer& transfer = plan.reductions[i];
    const double start = std::max(transfer.at_s, end);
    end = start + transfer.seconds;
    section.terms.push_back({fmt::format("bucket {}", i), "ready, start + time = end",
                             fmt::format("{}, {} + {}", seconds(transfer.at_s), seconds(start),
                                         seconds(transfer.seconds)),
                             seconds(end)});
  }
  return section;
}

}  // namespace

std::vector<Section> explain(const StepPlan& plan, Prices& prices) {
  std::vector<Section> sections = {explain_parameters(plan), explain_flops(plan),
                                   explain_memory(plan), explain_time(plan, prices),
                                   explain_traffic(plan, prices.flops_per_s())};
  if (!plan.reductions.empty()) sections.push_back(explain_buckets(plan));
  return sections;
}

}  // namespace tutti::plan
