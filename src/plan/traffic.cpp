#include "plan/traffic.hpp"

#include <algorithm>

#include "tutti/pipeline/simulate.hpp"

namespace tutti::plan {
namespace {

using Role = ModelPart::Role;

bool is_linear(Role role) {
  return role == Role::qkv || role == Role::projection || role == Role::into_mlp ||
         role == Role::out_of_mlp;
}
bool is_column(Role role) { return role == Role::qkv || role == Role::into_mlp; }

// What one linear's collectives cost and hide behind. Columns gather their input (in backward once
// more) and scatter its gradient; rows scatter their output and gather its gradient. In backward
// two products, for the input and for the weights, can hide them.
void add_linear(const ModelPart& part, const ModelLayout& layout, double gather_s, double scatter_s,
                double product_s, TensorTraffic& traffic) {
  const bool column = is_column(part.role);
  const bool again = layout.recompute == Recompute::full;
  const double forward = column ? gather_s : scatter_s;
  double backward = column ? gather_s + scatter_s : gather_s;
  double backward_hider = 2 * product_s;
  if (again) {
    backward += forward;
    backward_hider += product_s;
  }
  traffic.calls += (column ? 3 : 2) + (again ? 1 : 0);
  traffic.seconds.forward += forward;
  traffic.seconds.backward += backward;
  traffic.hider.forward += product_s;
  traffic.hider.backward += backward_hider;
  traffic.exposed.forward += layout.overlap_tp ? std::max(0.0, forward - product_s) : forward;
  traffic.exposed.backward +=
      layout.overlap_tp ? std::max(0.0, backward - backward_hider) : backward;
}

// Without sequence parallelism: an all_reduce behind a row in forward, before a column in backward.
void add_all_reduce(const ModelPart& part, const ModelLayout& layout, double seconds,
                    double product_s, TensorTraffic& traffic) {
  const bool column = is_column(part.role);
  const bool again = layout.recompute == Recompute::full && !column;
  const double forward = column ? 0 : seconds;
  const double backward = column ? seconds : again ? seconds : 0;
  traffic.calls += 1 + (again ? 1 : 0);
  traffic.seconds.forward += forward;
  traffic.seconds.backward += backward;
  traffic.hider.forward += product_s;
  traffic.hider.backward += 2 * product_s;
  traffic.exposed.forward += layout.overlap_tp ? std::max(0.0, forward - product_s) : forward;
  traffic.exposed.backward +=
      layout.overlap_tp ? std::max(0.0, backward - 2 * product_s) : backward;
}

}  // namespace

TensorTraffic tensor_traffic(const Model& model, const ModelLayout& layout,
                             const PipelineStage& stage, Prices& prices) {
  TensorTraffic traffic;
  if (layout.tp == 1) return traffic;
  const GroupSeats group = layout.tensor_group();
  traffic.call_bytes =
      layout.tokens() * static_cast<double>(model.hidden) * layout.precision.weight;
  const bool split = layout.sequence_parallel;
  const double gather = prices.collective(split ? Collective::all_gather : Collective::all_reduce,
                                          group, traffic.call_bytes);
  const double scatter =
      split ? prices.collective(Collective::reduce_scatter, group, traffic.call_bytes) : gather;
  for (const ModelPart& part : stage.parts) {
    const double product_s = part.flops / prices.flops_per_s();
    if (is_linear(part.role)) {
      if (split)
        add_linear(part, layout, gather, scatter, product_s, traffic);
      else
        add_all_reduce(part, layout, gather, product_s, traffic);
    } else if (part.role == Role::embedding) {  // rows of the vocabulary: summed, gathered back
      traffic.calls += split ? 2 : 1;
      traffic.seconds.forward += scatter;
      traffic.seconds.backward += split ? gather : 0;
      traffic.exposed.forward += scatter;
      traffic.exposed.backward += split ? gather : 0;
    } else if (part.role == Role::head) {  // a column
      if (split) {
        ModelLayout once = layout;  // the head is never computed again
        once.recompute = Recompute::none;
        add_linear({Role::into_mlp, 0, 0}, once, gather, scatter, product_s, traffic);
      } else {
        add_all_reduce({Role::into_mlp, 0, 0}, layout, gather, product_s, traffic);
      }
    }
  }
  return traffic;
}

ContextTraffic context_traffic(const Model& model, const ModelLayout& layout,
                               const PipelineStage& stage, Prices& prices) {
  ContextTraffic traffic;
  if (layout.cp == 1) return traffic;
  const double kv = static_cast<double>(model.kv_width()) / layout.tp;
  traffic.hop_bytes = 2 * layout.tokens() * kv * layout.precision.weight;
  traffic.hops = layout.cp - 1;
  const double hop_s = prices.send({2, layout.tp}, traffic.hop_bytes);
  for (const ModelPart& part : stage.parts) {
    if (part.role != Role::scores) continue;
    const double block_s = part.flops / prices.flops_per_s() / layout.cp;
    const double late = std::max(0.0, hop_s - block_s);
    const double again = layout.recompute == Recompute::full ? 1 : 0;  // the ring turns once more
    const double hops = traffic.hops;
    traffic.seconds.forward += hops * hop_s;
    traffic.hider.forward += hops * block_s;
    traffic.exposed.forward += hops * late;
    traffic.seconds.backward += (2 + again) * hops * hop_s;
    traffic.hider.backward += (2 + again) * hops * block_s;
    traffic.exposed.backward += (2 + again) * hops * late;
  }
  return traffic;
}

PipelineTraffic pipeline_traffic(const Model& model, const ModelLayout& layout, Prices& prices) {
  PipelineTraffic traffic;
  if (layout.pp == 1) return traffic;
  traffic.message_bytes =
      layout.tokens() * static_cast<double>(model.hidden) * layout.precision.weight;
  if (layout.sequence_parallel) traffic.message_bytes /= layout.tp;
  traffic.message_s = prices.send(layout.pipeline_neighbours(), traffic.message_bytes);
  const int v = layout.virtual_stages;
  traffic.calls = 2.0 * v * static_cast<double>(layout.micro_batches());
  // 1F1B waits for its neighbours in nearly every micro-batch, once each way. Interleaved, another
  // piece computes meanwhile.
  traffic.exposed_s =
      pipeline::uniform_exposed_messages(layout.schedule(), layout.pipeline_shape()).value_or(0) *
      traffic.message_s;
  return traffic;
}

}  // namespace tutti::plan
