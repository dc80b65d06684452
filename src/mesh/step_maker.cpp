#include "mesh/step_maker.hpp"

#include <algorithm>

#include "mesh/boxes.hpp"

namespace tutti::mesh {

int StepMaker::ranks_along(AxisSet axes) const {
  int ranks = 1;
  for (const int axis : axes_in(axes)) ranks *= tensor_.axes[static_cast<std::size_t>(axis)].size;
  return ranks;
}

// As nccl-tests count them: what is gathered in the end, or what a rank has in the beginning.
std::int64_t StepMaker::array_bytes(const Leg& leg, const Arrangement& before) const {
  const Arrangement& counted = leg.kind == StepKind::all_gather ? leg.after : before;
  return bytes_of(largest_count(counted, tensor_.shape, tensor_.axes));
}

// What a rank must get or give at the least, whatever the algorithm.
std::int64_t StepMaker::rank_bytes(const Leg& leg, const Arrangement& before) const {
  const int ranks = ranks_along(leg.axes);
  if (leg.kind == StepKind::all_reduce) return 2 * array_bytes(leg, before) * (ranks - 1) / ranks;
  std::int64_t most = 0;
  for (int position = 0; position < ranks_of(tensor_.axes); ++position) {
    const Coordinates at = coordinates_of(tensor_.axes, position);
    const TensorBox had = box_of(before, tensor_.shape, tensor_.axes, at);
    const TensorBox has = box_of(leg.after, tensor_.shape, tensor_.axes, at);
    const std::int64_t kept = common(had, has).count();
    most = std::max({most, had.count() - kept, has.count() - kept});
  }
  return bytes_of(most);
}

double StepMaker::price(const StepTraffic& traffic, AxisSet axes) {
  const auto [at, is_new] = known_.try_emplace(
      {traffic.kind, axes, traffic.array_bytes, traffic.away_bytes, traffic.host_bytes}, 0.0);
  if (is_new) at->second = std::max(0.0, costs_.seconds(traffic));
  return at->second;
}

double StepMaker::seconds(const Leg& leg, const Arrangement& before) {
  if (leg.kind == StepKind::slice || leg.kind == StepKind::make_partial) return 0;
  const auto bytes = static_cast<double>(array_bytes(leg, before));
  return price({leg.kind, axes_in(leg.axes), ranks_along(leg.axes), bytes, 0, 0}, leg.axes);
}

double StepMaker::seconds(const DeliveryList& list) {
  if (list.deliveries.empty()) return 0;
  return price({StepKind::transfer, axes_in(list.axes), ranks_along(list.axes),
                static_cast<double>(bytes_of(list.rank_count)),
                static_cast<double>(bytes_of(list.away_count)),
                static_cast<double>(bytes_of(list.host_count))},
               list.axes);
}

DeliveryList StepMaker::deliveries(const Arrangement& before, const Arrangement& after) const {
  return plan_deliveries({tensor_, before, after, costs_.hosts});
}

RedistributionStep StepMaker::step(const Leg& leg, const Arrangement& before) {
  RedistributionStep made;
  made.kind = leg.kind;
  made.after = leg.after.layout(tensor_, op_);
  made.axes = axes_in(leg.axes);
  if (leg.kind == StepKind::slice || leg.kind == StepKind::make_partial) return made;
  if (leg.kind == StepKind::transfer) {
    const DeliveryList list = deliveries(before, leg.after);
    made.axes = axes_in(list.axes);
    made.ranks = ranks_along(list.axes);
    made.array_bytes = made.rank_bytes = bytes_of(list.rank_count);
    made.seconds = seconds(list);
    return made;
  }
  made.ranks = ranks_along(leg.axes);
  made.array_bytes = array_bytes(leg, before);
  made.rank_bytes = rank_bytes(leg, before);
  made.seconds = seconds(leg, before);
  return made;
}

RedistributionChain chain_of(std::vector<RedistributionStep> steps) {
  RedistributionChain chain;
  chain.steps = std::move(steps);
  for (const RedistributionStep& step : chain.steps) {
    chain.rank_bytes += step.rank_bytes;
    chain.seconds += step.seconds;
  }
  return chain;
}

}  // namespace tutti::mesh
