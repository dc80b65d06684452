#include "plan/traffic.hpp"

#include <algorithm>

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

// Backward's ring: blocks on all visits but the last, gradients on all but the first and once more behind them.
double exposed_on_way_back(int ranks, double hop_s, double visit_s) {
  double exposed = hop_s;
  for (int visit = 0; visit < ranks; ++visit) {
    const double hops = (visit + 1 < ranks ? 1 : 0) + (visit > 0 ? 1 : 0);
    exposed += std::max(0.0, hops * hop_s - visit_s);
  }
  return exposed;
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
  const double hop_s = prices.send(layout.context_group(), traffic.hop_bytes);
  const double again = layout.recompute == Recompute::full ? 1 : 0;  // the ring turns once more
  for (const ModelPart& part : stage.parts) {
    if (part.role != Role::scores) continue;
    const double block_s = part.flops / prices.flops_per_s() / layout.cp;
    const double hops = traffic.hops;
    const double forward = hops * std::max(0.0, hop_s - block_s);
    traffic.seconds.forward += hops * hop_s;
    traffic.hider.forward += hops * block_s;
    traffic.exposed.forward += forward;
    traffic.seconds.backward += ((2 + again) * hops + 1) * hop_s;
    traffic.hider.backward += (2 + again) * hops * block_s;
    traffic.exposed.backward +=
        exposed_on_way_back(layout.cp, hop_s, 2 * block_s) + again * forward;
  }
  return traffic;
}

PipelineTraffic pipeline_traffic(const Model& model, const ModelLayout& layout, Prices& prices) {
  PipelineTraffic traffic;
  if (layout.pp == 1) return traffic;
  traffic.message_bytes =
      layout.tokens() * static_cast<double>(model.hidden) * layout.precision.weight;
  if (layout.sequence_parallel) traffic.message_bytes /= layout.tp;
  const GroupSeats group = layout.pipeline_group();
  const int host = prices.cluster().ranks_per_host;
  const double near = prices.send({2, 1}, traffic.message_bytes);
  const double far = prices.send(group, traffic.message_bytes);
  for (int place = 0; place + 1 < layout.pp * layout.virtual_stages; ++place) {
    const int from = place % layout.pp * group.stride, to = (place + 1) % layout.pp * group.stride;
    traffic.boundaries_s.push_back(from / host == to / host ? near : far);
  }
  traffic.message_s = *std::max_element(traffic.boundaries_s.begin(), traffic.boundaries_s.end());
  traffic.calls = 2.0 * layout.virtual_stages * static_cast<double>(layout.micro_batches());
  return traffic;
}

}  // namespace tutti::plan
